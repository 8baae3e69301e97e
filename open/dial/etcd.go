// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/url"
	"slices"

	"github.com/hasplock/hasp/etcddriver"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// etcdServers are the members of an etcd cluster.
type etcdServers struct {
	*hosts
	params url.Values
	prefix string
	tls    tlsFiles // of the URL alone
}

// parseEtcd reads what follows "etcd:" or "etcds:".
func parseEtcd(scheme, rest string) (*URL, error) {
	h, query, err := parseHosts(scheme, rest, "2379")
	if err == nil {
		err = h.both()
	}
	if err != nil {
		return nil, err
	}
	if h.path != "" {
		return nil, errors.New("the store's URL has a path, which etcd has not: name the beginning of its keys with ?prefix=TEXT")
	}
	u, e := &URL{}, &etcdServers{hosts: h, tls: tlsFiles{}}
	u.place = e
	known := []string{"prefix"}
	if e.secure() {
		known = append(known, slices.Sorted(maps.Keys(envTLS))...)
	}
	values, err := u.parameters(query, known...)
	if err != nil {
		return nil, err
	}
	if e.prefix = values.Get("prefix"); values.Has("prefix") && e.prefix == "" {
		return nil, errors.New("prefix= in the store's URL is empty: locks in etcd need one, since other programs' keys are beside them")
	}
	e.tls.take(values)
	e.params = values
	return u, nil
}

func (e *etcdServers) secure() bool { return e.scheme == "etcds" }

func (e *etcdServers) open(how *opening) (*Store, error) {
	config := clientv3.Config{Endpoints: e.addrs, Logger: zap.NewNop()} // what matters comes back as an error, or is seen
	dial := e.seen.watch(plainly)
	if e.secure() {
		var err error
		if config.TLS, err = e.tls.inForce().configure(&tls.Config{MinVersion: tls.VersionTLS12}); err != nil {
			return nil, err
		}
		config.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(handshakes{credentials.NewTLS(config.TLS), e.seen})}
		dial = e.seen.reach(plainly)
	}
	o := &etcddriver.ConnectOptions{Dial: func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }}
	if e.user != "" && e.password != "" {
		o.Login = func() (user, password string, err error) {
			e := how.latest().(*etcdServers) //nolint:forcetypeassert // as place.open says
			return e.user, e.password, nil
		}
	}
	client, err := etcddriver.Connect(config, o)
	if err != nil {
		return nil, err
	}
	return &Store{Driver: owning(etcddriver.New(client, &etcddriver.Options{Prefix: e.prefix}), client.Close)}, nil
}

// handshakes are looked at: gRPC keeps to itself why one failed.
type handshakes struct {
	credentials.TransportCredentials
	seen *sights
}

func (h handshakes) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, c)
	if err != nil {
		return nil, nil, h.seen.shaken(authority, err)
	}
	return h.seen.overTLS(t, authority, nil), info, nil
}

func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.seen}
}

func (e *etcdServers) parts() Parts {
	p := e.hosts.parts(Etcd, e.params)
	if e.secure() {
		p.TLS = e.tls.inForce()
	}
	return p
}

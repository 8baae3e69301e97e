// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/hasplock/hasp/zkdriver"
)

// zkServers are the servers of a ZooKeeper ensemble.
type zkServers struct {
	*hosts
	params url.Values
	root   string
	layout zkdriver.Layout
}

// parseZK reads what follows "zk:".
func parseZK(scheme, rest string) (*URL, error) {
	h, query, err := parseHosts(scheme, rest, "2181")
	if err == nil {
		err = h.both()
	}
	if err != nil {
		return nil, err
	}
	u, z := &URL{}, &zkServers{hosts: h, root: zkdriver.DefaultRoot}
	u.place = z
	values, err := u.parameters(query, "layout")
	if err != nil {
		return nil, err
	}
	if path := strings.TrimSuffix(h.path, "/"); path != "" {
		z.root = "/" + path
	}
	z.params = values
	switch values.Get("layout") {
	case "", "readwrite":
	case "mutex":
		z.layout = zkdriver.Mutex
	case "semaphore":
		z.layout = zkdriver.Semaphore
	default:
		return nil, errors.New("layout= in the store's URL is not one of Curator's that hasp has: readwrite (InterProcessReadWriteLock), the default, " +
			"mutex (InterProcessMutex) or semaphore (InterProcessSemaphoreV2)")
	}
	return u, nil
}

func (z *zkServers) open(how *opening) (*Store, error) {
	dial := z.seen.watch(plainly)
	o := &zkdriver.ConnOptions{Dial: func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }}
	if z.user != "" {
		o.Login = func(context.Context) (user, password string, err error) {
			z := how.latest().(*zkServers) //nolint:forcetypeassert // as place.open says
			return z.user, z.password, nil
		}
	}
	conn := zkdriver.Connect(z.addrs, o)
	return &Store{Driver: owning(zkdriver.New(conn, &zkdriver.Options{Root: z.root, Layout: z.layout}), conn.Close)}, nil
}

func (z *zkServers) parts() Parts { return z.hosts.parts(ZK, z.params) }

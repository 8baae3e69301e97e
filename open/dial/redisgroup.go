// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisGroup is Redis with replicas: a master that Sentinels watch, or a cluster.
type redisGroup struct {
	*hosts
	redisKeys
	master   string // as its Sentinels call it; empty for a cluster
	user     string // of Redis
	password string // of Redis

	sentinelUser, sentinel string // and password: of the Sentinels
	db                     int
}

// parseSentinel reads what follows "redis+sentinel:" or "rediss+sentinel:".
func parseSentinel(scheme, rest string) (*URL, error) {
	u, g, values, err := parseGroup(scheme, rest, "26379", "max-ttl", "user", "sentinel-user", "sentinel-password")
	if err != nil {
		return nil, err
	}
	if g.master = g.hosts.user; g.master == "" {
		return nil, fmt.Errorf("the store's URL does not say how the Sentinels call the master: %s://NAME@HOST[:PORT],HOST[:PORT]", scheme)
	}
	g.user, g.sentinelUser, g.sentinel = values.Get("user"), values.Get("sentinel-user"), values.Get("sentinel-password")
	if g.sentinelUser != "" && g.sentinel == "" {
		return nil, errors.New("sentinel-user= in the store's URL needs sentinel-password=")
	}
	if g.user != "" && g.password == "" {
		return nil, fmt.Errorf("user= in the store's URL needs a password: %s://NAME:PASSWORD@HOST", scheme)
	}
	if g.path != "" {
		if g.db, err = strconv.Atoi(g.path); err != nil || g.db < 0 {
			return nil, errors.New("the database in the store's URL is not a number")
		}
	}
	return u, g.checkTTL(u.TTL)
}

// parseCluster reads what follows "redis+cluster:" or "rediss+cluster:".
func parseCluster(scheme, rest string) (*URL, error) {
	u, g, _, err := parseGroup(scheme, rest, "6379")
	if err != nil {
		return nil, err
	}
	if g.user = g.hosts.user; g.user != "" && g.password == "" {
		return nil, fmt.Errorf("the store's URL has a user without a password: a password alone is written with a colon, %s://:PASSWORD@HOST", scheme)
	}
	if g.path != "" && g.path != "0" {
		return nil, errors.New("the store's URL names a database, and a Redis Cluster has only database 0")
	}
	return u, g.checkTTL(u.TTL)
}

func parseGroup(scheme, rest, port string, more ...string) (*URL, *redisGroup, url.Values, error) {
	h, query, err := parseHosts(scheme, rest, port)
	if err != nil {
		return nil, nil, nil, err
	}
	u, g := &URL{}, &redisGroup{hosts: h, password: h.password}
	u.place = g
	known := slices.Concat([]string{"prefix", "replicas"}, more, layoutParameters)
	if g.secure() {
		known = append(known, slices.Sorted(maps.Keys(envTLS))...)
	}
	values, err := u.parameters(query, known...)
	if err == nil {
		err = g.parameters(values)
	}
	return u, g, values, err
}

func (g *redisGroup) secure() bool { return strings.HasPrefix(g.scheme, "rediss") }

func (g *redisGroup) parts() Parts {
	p := Parts{Kind: Sentinel, Addrs: g.addrs, User: g.user, Password: g.password != "", SentinelUser: g.sentinelUser,
		SentinelPassword: g.sentinel != "", Master: g.master, Database: strconv.Itoa(g.db), Params: maps.Clone(g.params)}
	if g.master == "" {
		p.Kind = Cluster
	}
	p.Params.Del("sentinel-password")
	if g.secure() {
		p.TLS = g.tls.inForce()
	}
	return p
}

func (g *redisGroup) String() string {
	if g.master == "" {
		return fmt.Sprintf("%s://%s", g.scheme, strings.Join(g.addrs, ","))
	}
	return fmt.Sprintf("%s://%s@%s/%d", g.scheme, url.PathEscape(g.master), strings.Join(g.addrs, ","), g.db)
}

// options are those of a client of one server; Addr is not set.
func (g *redisGroup) options() (*redis.Options, error) {
	o := redis.Options{Username: g.user, Password: g.password, DB: g.db}
	if g.secure() {
		var err error
		if o.TLSConfig, err = g.tls.inForce().configure(&tls.Config{MinVersion: tls.VersionTLS12}); err != nil {
			return nil, err
		}
	}
	o.Dialer = g.seen.redisDialer(o.TLSConfig)
	return options(o), nil
}

func (g *redisGroup) open(how *opening) (*Store, error) {
	o, err := g.options()
	if err != nil {
		return nil, err
	}
	o.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
		g := how.latest().(*redisGroup) //nolint:forcetypeassert // as place.open says
		return g.user, g.password, nil
	}
	if g.master == "" {
		return g.openCluster(o), nil
	}
	o.OnConnect = g.logIn(how.latest, o.OnConnect)
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: g.master, SentinelAddrs: g.addrs,
		CredentialsProviderContext: o.CredentialsProviderContext, DB: o.DB, Dialer: o.Dialer, OnConnect: o.OnConnect,
		MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolSize: o.PoolSize,
	})
	engine := g.driver(rdb)
	disconnect := []func() error{rdb.Close}
	s := &Store{Servers: []Server{{g.master, engine, rdb}}, Dial: o.Dialer}
	for _, addr := range g.addrs {
		one := redis.NewSentinelClient(&redis.Options{
			Addr: addr, OnConnect: o.OnConnect, Dialer: o.Dialer, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true,
		})
		s.Sentinels = append(s.Sentinels, SentinelServer{addr, one})
		disconnect = append(disconnect, one.Close)
	}
	s.Driver = owning(engine, disconnect...)
	return s, nil
}

// ofTheMaster is in the text of go-redis's connections to the master that Sentinels name.
const ofTheMaster = "FailoverClient"

// logIn logs in to a Sentinel with the password of by then: go-redis asks nothing for that.
func (g *redisGroup) logIn(now func() place, then func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	if g.sentinel == "" {
		return then
	}
	return func(ctx context.Context, cn *redis.Conn) error {
		if !strings.Contains(cn.String(), ofTheMaster) && redis.HasErrorPrefix(cn.Ping(ctx).Err(), "NOAUTH") {
			g := now().(*redisGroup) //nolint:forcetypeassert // as place.open says
			login := cn.Auth(ctx, g.sentinel)
			if g.sentinelUser != "" {
				login = cn.AuthACL(ctx, g.sentinelUser, g.sentinel)
			}
			if err := login.Err(); err != nil {
				return err
			}
		}
		return then(ctx, cn)
	}
}

func (g *redisGroup) openCluster(o *redis.Options) *Store {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: g.addrs, CredentialsProviderContext: o.CredentialsProviderContext, Dialer: o.Dialer, OnConnect: o.OnConnect,
		MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolSize: o.PoolSize,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	})
	return &Store{Driver: owning(g.driver(rdb), rdb.Close), Cluster: rdb, Dial: o.Dialer}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/hasplock/hasp/zkdriver"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// opener connects one more driver, and says how to disconnect it.
type opener func() (driver.Driver, func() error, error)

// stores are all that hasp can use: by what a flag calls them, where many waiters are measured, and by their title in
// the table of costs.
var stores = []struct {
	name, title string
	start       func(place) opener
}{
	{"sqlite", "SQLite", over(engines.SQLite)},
	{"redis", "Redis", func(p place) opener { return p.redis(plain) }},
	{"", "Redis, Sentinel", sentinel(0)},
	{"", "the same with `replicas=2`", sentinel(2)},
	{"", "Redis Cluster", func(p place) opener {
		cluster := testserver.NewRedisCluster(p, 3, testserver.RedisGroup{Timeout: time.Minute})
		return connected(redis.UniversalOptions{Addrs: cluster.Addrs(), IsClusterMode: true}, plain)
	}},
	{"", "Redis, `layout=redisson`", theirs(redisson.Lock)},
	{"", "the same with `kind=fair`", theirs(redisson.Fair)},
	{"", "the same with `kind=fenced`", theirs(redisson.Fenced)},
	{"", "the same with `kind=readwrite`", theirs(redisson.ReadWrite)},
	{"redlock", "Redlock over 3 Redis", redlock},
	{"etcd", "etcd", over(engines.Etcd)},
	{"", "etcd, three members", over(engines.Etcd3)},
	{"zookeeper", "ZooKeeper", func(p place) opener {
		addr := p.link(testserver.ZooKeeper(p).Addr())
		return func() (driver.Driver, func() error, error) {
			conn := zkdriver.Connect([]string{addr}, &zkdriver.ConnOptions{SessionTimeout: p.ttl * 3 / 2})
			return zkdriver.New(conn, nil), conn.Close, nil
		}
	}},
	{"postgres", "", over(engines.Postgres)},
	{"", "PostgreSQL", opened(engines.Postgres, func(addrs []string) (*engines.Conn, error) {
		return engines.OpenPostgres(addrs[0], pgx.QueryExecModeCacheStatement) // pgx's default
	})},
	{"mariadb", "MariaDB", over(engines.MariaDB)},
}

// place is where servers run, and how far away they are.
type place struct {
	*testserver.Program
	rtt time.Duration // of each link; 0: there is none
	ttl time.Duration // of the leases
}

// link returns the address of a server behind a slow link.
func (p place) link(addr string) string {
	if p.rtt == 0 {
		return addr
	}
	l := faultproxy.New(p, addr)
	l.Delay(p.rtt)
	return l.Addr()
}

func over(k engines.Kind) func(place) opener {
	return opened(k, func(addrs []string) (*engines.Conn, error) { return engines.Open(k, addrs) })
}

func opened(k engines.Kind, open func(addrs []string) (*engines.Conn, error)) func(place) opener {
	return func(p place) opener {
		store := engines.Start(p, k)
		addrs := store.Addrs()
		if p.rtt > 0 {
			links := store.Links(p)
			for _, l := range links {
				l.Delay(p.rtt)
			}
			addrs = store.Through(links)
		}
		return func() (driver.Driver, func() error, error) {
			c, err := open(addrs)
			if err != nil {
				return nil, nil, err
			}
			return c.Driver, c.Disconnect, nil
		}
	}
}

func plain(rdb redis.UniversalClient) driver.Driver { return redisdriver.New(rdb, nil) }

func connected(o redis.UniversalOptions, engine func(redis.UniversalClient) driver.Driver) opener {
	o.ContextTimeoutEnabled = true
	return func() (driver.Driver, func() error, error) {
		rdb := redis.NewUniversalClient(&o)
		return engine(rdb), rdb.Close, nil
	}
}

func (p place) redis(engine func(redis.UniversalClient) driver.Driver) opener {
	return connected(redis.UniversalOptions{Addrs: []string{p.link(testserver.Redis(p).Addr())}}, engine)
}

func sentinel(replicas int) func(place) opener {
	return func(p place) opener {
		group := testserver.NewRedisSentinel(p, testserver.RedisGroup{Timeout: time.Minute})
		return connected(redis.UniversalOptions{MasterName: testserver.MasterName, Addrs: group.Addrs()}, func(rdb redis.UniversalClient) driver.Driver {
			return redisdriver.New(rdb, &redisdriver.Options{Replicas: replicas})
		})
	}
}

func theirs(kind redisson.Kind) func(place) opener {
	return func(p place) opener {
		return p.redis(func(rdb redis.UniversalClient) driver.Driver { return redisson.New(rdb, &redisson.Options{Kind: kind}) })
	}
}

func redlock(p place) opener {
	var nodes []opener
	for range 3 {
		nodes = append(nodes, p.redis(func(rdb redis.UniversalClient) driver.Driver { return redisdriver.NewNode(rdb, time.Minute, nil) }))
	}
	open := func() (driver.Driver, func() error, error) {
		var all []driver.Node
		var ends []func() error
		for _, open := range nodes {
			d, end, _ := open() // it connects later
			all, ends = append(all, d.(driver.Node)), append(ends, end)
		}
		return quorum.New(all, nil), func() (err error) {
			for _, end := range ends {
				err = errors.Join(err, end())
			}
			return err
		}, nil
	}
	d, disconnect, err := open()
	p.Must(err)
	c, err := hasp.New(d, nil)
	p.Must(err)
	p.Must(errors.Join(c.Admit(p.Context()), c.Close(), disconnect()))
	return open
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/jackc/pgx/v5"
)

// opener connects one more driver.
type opener func() (*engines.Conn, error)

// stores are all that hasp can use: by what a flag calls them, where many waiters are measured, and by their title in
// the table of costs.
var stores = []struct {
	name, title string
	start       func(place) opener
}{
	{"sqlite", "SQLite", over(engines.SQLite)},
	{"redis", "Redis", over(engines.Redis)},
	{"", "Redis, Sentinel", sentinel("")},
	{"", "the same with `replicas=2`", sentinel("?replicas=2")},
	{"", "Redis Cluster", func(p place) opener {
		return at("redis+cluster://" + strings.Join(testserver.NewRedisCluster(p, 3, testserver.RedisGroup{Timeout: time.Minute}).Addrs(), ","))
	}},
	{"", "Redis, `layout=redisson`", redisson("")},
	{"", "the same with `kind=fair`", redisson("&kind=fair")},
	{"", "the same with `kind=fenced`", redisson("&kind=fenced")},
	{"", "the same with `kind=readwrite`", redisson("&kind=readwrite")},
	{"redlock", "Redlock over 3 Redis", over(engines.Redlock)},
	{"etcd", "etcd", over(engines.Etcd)},
	{"", "etcd, three members", over(engines.Etcd3)},
	{"zookeeper", "ZooKeeper", over(engines.ZooKeeper)},
	{"postgres", "", over(engines.Postgres)},
	{"", "PostgreSQL", opened(engines.Postgres, func(addrs []string, _ time.Duration) (*engines.Conn, error) {
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

func over(k engines.Kind) func(place) opener {
	return opened(k, func(addrs []string, ttl time.Duration) (*engines.Conn, error) { return engines.OpenFor(k, addrs, ttl) })
}

func opened(k engines.Kind, open func(addrs []string, ttl time.Duration) (*engines.Conn, error)) func(place) opener {
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
		return func() (*engines.Conn, error) { return open(addrs, p.ttl) }
	}
}

// at opens what a URL names.
func at(url string) opener { return func() (*engines.Conn, error) { return engines.ByURL(url) } }

func sentinel(more string) func(place) opener {
	return func(p place) opener {
		group := testserver.NewRedisSentinel(p, testserver.RedisGroup{Timeout: time.Minute})
		return at("redis+sentinel://" + testserver.MasterName + "@" + strings.Join(group.Addrs(), ",") + more)
	}
}

func redisson(more string) func(place) opener {
	return func(p place) opener { return at("redis://" + testserver.Redis(p).Addr() + "?layout=redisson" + more) }
}

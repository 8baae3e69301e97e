// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
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
	{"", "Redis, Sentinel", sentinel(0)},
	{"", "the same with `replicas=2`", sentinel(2)},
	{"", "Redis Cluster", func(p place) opener {
		cluster := testserver.NewRedisCluster(p, 3, testserver.RedisGroup{Timeout: time.Minute})
		return connected(redis.UniversalOptions{Addrs: cluster.Addrs(), IsClusterMode: true}, func(rdb redis.UniversalClient) driver.Driver { return redisdriver.New(rdb, nil) })
	}},
	{"", "Redis, `layout=redisson`", theirs(redisson.Lock)},
	{"", "the same with `kind=fair`", theirs(redisson.Fair)},
	{"", "the same with `kind=fenced`", theirs(redisson.Fenced)},
	{"", "the same with `kind=readwrite`", theirs(redisson.ReadWrite)},
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

func connected(o redis.UniversalOptions, engine func(redis.UniversalClient) driver.Driver) opener {
	return func() (*engines.Conn, error) {
		rdb := redis.NewUniversalClient(&o)
		return &engines.Conn{Driver: engine(rdb), Disconnect: rdb.Close}, nil
	}
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
		return connected(redis.UniversalOptions{Addrs: []string{testserver.Redis(p).Addr()}}, func(rdb redis.UniversalClient) driver.Driver {
			return redisson.New(rdb, &redisson.Options{Kind: kind})
		})
	}
}

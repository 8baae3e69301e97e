// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/hasplock/hasp/zkdriver"
	"github.com/redis/go-redis/v9"
)

// freeBar is for how long a key may be free beside a live waiter, without the round trips of the link.
const freeBar = time.Second

// crowd is many waiters for one key of one engine.
type crowd struct {
	waiters, clients int
	rtt, length, ttl time.Duration

	mu       sync.Mutex
	released time.Time // when the latest release began; zero: the key is held
	free     time.Duration
	handoffs int
	served   int   // waiters that had it once, at least
	failed   error // the first one

	errs, lost atomic.Int64
}

func waiters(flags *flag.FlagSet) func(*tb) []row {
	var c crowd
	flags.IntVar(&c.waiters, "waiters", 64, "how many goroutines want the key")
	flags.IntVar(&c.clients, "clients", 8, "over how many clients they are spread")
	flags.DurationVar(&c.rtt, "rtt", 50*time.Millisecond, "the round trip of each link")
	flags.DurationVar(&c.length, "for", 20*time.Second, "how long each engine is measured")
	flags.DurationVar(&c.ttl, "ttl", 10*time.Second, "the TTL")
	busy := flags.Int("busy", 0, "how many busy loops run beside")
	only := flags.String("engine", "", "one engine alone")
	return func(t *tb) (rows []row) {
		for range *busy {
			loop := exec.CommandContext(t.ctx, "sh", "-c", "while :; do :; done")
			t.must(loop.Start())
			t.Cleanup(func() { _, _ = loop.Process.Kill(), loop.Wait() })
		}
		for _, e := range crowded {
			if *only != "" && *only != e.name {
				continue
			}
			got, err := perform(t.ctx, func(sub *tb) []row {
				c := &crowd{waiters: c.waiters, clients: c.clients, rtt: c.rtt, length: c.length, ttl: c.ttl}
				return c.run(sub, e.name, e.open(sub, c))
			})
			t.must(err)
			rows = append(rows, got...)
		}
		return rows
	}
}

// opener connects one more driver, and says how to disconnect it.
type opener func() (driver.Driver, func() error, error)

var crowded = []struct {
	name string
	open func(*tb, *crowd) opener
}{
	{"redis", func(t *tb, c *crowd) opener {
		addr := c.link(t, testserver.Redis(t).Addr())
		return func() (driver.Driver, func() error, error) {
			rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
			return redisdriver.New(rdb, nil), rdb.Close, nil
		}
	}},
	{"redlock", crowdOfRedlock},
	{"etcd", over(engines.Etcd)},
	{"zookeeper", func(t *tb, c *crowd) opener {
		addr := c.link(t, testserver.ZooKeeper(t).Addr())
		return func() (driver.Driver, func() error, error) {
			conn := zkdriver.Connect([]string{addr}, &zkdriver.ConnOptions{SessionTimeout: c.ttl * 3 / 2})
			return zkdriver.New(conn, nil), conn.Close, nil
		}
	}},
	{"postgres", over(engines.Postgres)},
	{"mariadb", over(engines.MariaDB)},
	{"sqlite", over(engines.SQLite)},
}

func over(k engines.Kind) func(*tb, *crowd) opener {
	return func(t *tb, c *crowd) opener {
		store := engines.Start(t, k)
		links := store.Links(t)
		for _, l := range links {
			l.Delay(c.rtt)
		}
		return func() (driver.Driver, func() error, error) {
			conn, err := engines.Open(k, store.Through(links))
			if err != nil {
				return nil, nil, err
			}
			return conn.Driver, conn.Disconnect, nil
		}
	}
}

func crowdOfRedlock(t *tb, c *crowd) opener {
	var addrs []string
	for range 3 {
		addrs = append(addrs, c.link(t, testserver.Redis(t).Addr()))
	}
	open := func() (driver.Driver, func() error, error) {
		var nodes []driver.Node
		var clients []*redis.Client
		for _, addr := range addrs {
			rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
			clients, nodes = append(clients, rdb), append(nodes, redisdriver.NewNode(rdb, time.Minute, nil))
		}
		return quorum.New(nodes, nil), func() (err error) {
			for _, rdb := range clients {
				err = errors.Join(err, rdb.Close())
			}
			return err
		}, nil
	}
	d, disconnect, err := open()
	t.must(err)
	client, err := hasp.New(d, nil)
	t.must(err)
	t.must(errors.Join(client.Admit(t.ctx), client.Close(), disconnect()))
	return open
}

// link returns the address of a slow link to a server.
func (c *crowd) link(t *tb, addr string) string {
	l := faultproxy.New(t, addr)
	l.Delay(c.rtt)
	return l.Addr()
}

func (c *crowd) run(t *tb, name string, open opener) []row {
	ctx, cancel := context.WithTimeout(t.ctx, c.length)
	defer cancel()
	var all sync.WaitGroup
	var end []func() error
	for range c.clients {
		d, disconnect, err := open()
		t.must(err)
		client, err := hasp.New(d, &hasp.Options{Observe: c.observe})
		t.must(err)
		end = append(end, client.Close, disconnect)
		for range c.waiters / c.clients {
			all.Go(func() { c.wait(ctx, client.Mutex("k", &hasp.LockOptions{TTL: c.ttl})) })
		}
	}
	<-ctx.Done()
	c.nowFree()
	all.Wait()
	for _, f := range end {
		_ = f() // what the link still holds is not the figure
	}
	what := fmt.Sprintf("%s: %d waiters of %d clients, a round trip of %v", name, c.waiters, c.clients, c.rtt)
	most := freeBar + 2*c.rtt
	rows := []row{judged(c.free <= most && c.lost.Load() == 0 && c.errs.Load() == 0, what,
		fmt.Sprintf("free ≤ %v, none lost, none failed", most), "%.1f handoffs/s; %d served; free for at most %v; %d lost; %d failed",
		float64(c.handoffs)/c.length.Seconds(), c.served, c.free.Round(time.Millisecond), c.lost.Load(), c.errs.Load())}
	if c.failed != nil {
		rows = append(rows, figure(what+": the first error", "%v", c.failed))
	}
	return rows
}

func (c *crowd) observe(e hasp.Event) {
	if e.Kind == hasp.EventLost {
		c.lost.Add(1)
	}
}

// wait takes the key again and again.
func (c *crowd) wait(ctx context.Context, m *hasp.Mutex) {
	for first := true; ; {
		lease, err := m.Lock(ctx)
		if ctx.Err() != nil {
			if err == nil {
				_ = lease.Release()
			}
			return
		}
		if err == nil {
			c.granted(first)
			first = false
			c.gone()
			err = lease.Release()
		}
		if err != nil {
			c.fail(err)
		}
	}
}

func (c *crowd) granted(first bool) {
	c.nowFree()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = time.Time{}
	c.handoffs++
	if first {
		c.served++
	}
}

// nowFree notes for how long the key has been free until now.
func (c *crowd) nowFree() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.released.IsZero() {
		c.free = max(c.free, time.Since(c.released))
	}
}

// gone notes that a release begins.
func (c *crowd) gone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = time.Now()
}

func (c *crowd) fail(err error) {
	c.errs.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

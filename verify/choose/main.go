// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Choose writes the table of docs/choosing.md: what each engine promises, from its traits, and what it costs, measured on servers of
// its own, without contention and from one client to the next.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/hasplock/hasp/verify/internal/page"
	"github.com/redis/go-redis/v9"
)

const (
	rounds = 5
	each   = 400 * time.Millisecond // of a round, for each engine and figure
	nodes  = 3                      // of Redlock
	ttl    = 2 * time.Second        // sessions of ZooKeeper are short here
)

// candidate is an engine to choose.
type candidate struct {
	name   string
	open   func() (driver.Driver, func() error, error)
	traits driver.Traits

	pairs, handoffs []time.Duration // the median of each round
}

func main() {
	into := flag.String("into", "", "write the table into this `file`, between the marks that are there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	redis.SetLogger(silent{})
	if err := run(ctx, *into); err != nil {
		fmt.Fprintln(os.Stderr, "choose:", err)
		os.Exit(1)
	}
}

// silent drops go-redis's messages.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func run(ctx context.Context, into string) error {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		if err := os.Setenv("TMPDIR", "/dev/shm"); err != nil { // what a disk takes to sync is its own
			return err
		}
	}
	text, err := testserver.Perform(ctx, func(t *testserver.Program) string {
		all := candidates(t)
		for range rounds {
			for _, c := range all {
				t.Must(c.measure(t.Context()))
			}
		}
		return table(all)
	})
	if err != nil {
		return err
	}
	fmt.Print(text)
	if into == "" {
		return nil
	}
	return page.Write(into, "engines", text)
}

// candidates starts the servers of every engine.
func candidates(t *testserver.Program) (all []*candidate) {
	add := func(name string, open func() (driver.Driver, func() error, error)) {
		all = append(all, &candidate{name: name, open: open})
	}
	over := func(name string, k engines.Kind) {
		store := engines.Start(t, k)
		add(name, func() (driver.Driver, func() error, error) {
			c, err := engines.Open(k, store.Addrs())
			if err != nil {
				return nil, nil, err
			}
			return c.Driver, c.Disconnect, nil
		})
	}
	over("SQLite", engines.SQLite)
	one := testserver.Redis(t)
	add("Redis", func() (driver.Driver, func() error, error) {
		rdb := redis.NewClient(&redis.Options{Addr: one.Addr()})
		return redisdriver.New(rdb, nil), rdb.Close, nil
	})
	sentinel := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: time.Minute})
	for _, replicas := range []int{0, len(sentinel.Replicas)} {
		name := "Redis, Sentinel"
		if replicas > 0 {
			name = fmt.Sprintf("the same with `replicas=%d`", replicas)
		}
		add(name, func() (driver.Driver, func() error, error) {
			rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: testserver.MasterName, SentinelAddrs: sentinel.Addrs()})
			return redisdriver.New(rdb, &redisdriver.Options{Replicas: replicas}), rdb.Close, nil
		})
	}
	cluster := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: time.Minute})
	add("Redis Cluster", func() (driver.Driver, func() error, error) {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		return redisdriver.New(rdb, nil), rdb.Close, nil
	})
	for _, kind := range []redisson.Kind{redisson.Lock, redisson.Fair, redisson.Fenced, redisson.ReadWrite} {
		name := "Redis, `layout=redisson`"
		if kind != redisson.Lock {
			name = fmt.Sprintf("the same with `kind=%v`", kind)
		}
		add(name, func() (driver.Driver, func() error, error) {
			rdb := redis.NewClient(&redis.Options{Addr: one.Addr()})
			// Redisson knows a name as one kind only.
			return redisson.New(rdb, &redisson.Options{Kind: kind, Prefix: fmt.Sprintf("%v:", kind)}), rdb.Close, nil
		})
	}
	redlock(t, add)
	over("etcd", engines.Etcd)
	over("etcd, three members", engines.Etcd3)
	over("ZooKeeper", engines.ZooKeeper)
	over("PostgreSQL", engines.Postgres)
	over("MariaDB", engines.MariaDB)
	return all
}

func redlock(t *testserver.Program, add func(string, func() (driver.Driver, func() error, error))) {
	var servers []*testserver.Server
	for range nodes {
		servers = append(servers, testserver.Redis(t))
	}
	open := func() (driver.Driver, func() error, error) {
		var all []driver.Node
		var clients []*redis.Client
		for _, s := range servers {
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
			clients = append(clients, rdb)
			all = append(all, redisdriver.NewNode(rdb, time.Minute, nil))
		}
		return quorum.New(all, nil), func() (err error) {
			for _, c := range clients {
				err = errors.Join(err, c.Close())
			}
			return err
		}, nil
	}
	d, disconnect, err := open()
	t.Must(err)
	c, err := hasp.New(d, nil)
	t.Must(err)
	t.Must(errors.Join(c.Admit(t.Context()), c.Close(), disconnect()))
	add(fmt.Sprintf("Redlock over %d Redis", nodes), open)
}

// measure makes one round.
func (c *candidate) measure(ctx context.Context) error {
	var clients [2]*hasp.Client
	waits := make(chan struct{}, 1)
	for i := range clients {
		d, disconnect, err := c.open()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		c.traits = d.Traits()
		defer func() { _ = disconnect() }()
		clients[i], err = hasp.New(d, &hasp.Options{Observe: func(e hasp.Event) {
			if e.Kind == hasp.EventWaiting {
				select {
				case waits <- struct{}{}:
				default:
				}
			}
		}})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer func() { _ = clients[i].Close() }()
	}
	pairs, err := sample(func() (time.Duration, error) { return pair(ctx, clients[0]) })
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	turn := 0
	handoffs, err := sample(func() (time.Duration, error) {
		turn++
		return handoff(ctx, clients[turn%2], clients[(turn+1)%2], waits)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	c.pairs, c.handoffs = append(c.pairs, pairs), append(c.handoffs, handoffs)
	return nil
}

// sample returns the median of what f measures, without the first few, which connect.
func sample(f func() (time.Duration, error)) (time.Duration, error) {
	const warm = 4
	var all []time.Duration
	for begun := time.Now(); len(all) < 2*warm || time.Since(begun) < each; {
		took, err := f()
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	return median(all[warm:]), nil
}

func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// pair locks and releases a key that nobody else wants.
func pair(ctx context.Context, c *hasp.Client) (time.Duration, error) {
	begun := time.Now()
	lease, err := c.Mutex("alone", &hasp.LockOptions{TTL: ttl}).Lock(ctx)
	if err == nil {
		err = lease.Release()
	}
	return time.Since(begun), err
}

// handoff returns how long after a release began the other client has the key.
func handoff(ctx context.Context, from, to *hasp.Client, waits <-chan struct{}) (took time.Duration, err error) {
	lease, err := from.Mutex("both", &hasp.LockOptions{TTL: ttl}).Lock(ctx)
	if err != nil {
		return 0, err
	}
	select {
	case <-waits:
	default:
	}
	var next *hasp.Lease
	var failed error
	var granted time.Time
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		next, failed = to.Mutex("both", &hasp.LockOptions{TTL: ttl}).Lock(ctx)
		granted = time.Now()
	}()
	select {
	case <-waits:
	case <-ended:
	case <-ctx.Done():
	}
	time.Sleep(2 * time.Millisecond) // until it listens, too
	begun := time.Now()
	err = lease.Release()
	<-ended
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return granted.Sub(begun), next.Release()
}

func table(all []*candidate) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Measured in one run on %d cores, all on one machine, with files in memory (%s): add the round trips of your network, and the syncs of your disk.\n\n", runtime.NumCPU(), runtime.Version())
	fmt.Fprintln(&b, "| engine | waiting | fences | many readers; semaphores | lock and release, alone | from a release to the next client's grant |\n|---|---|---|---|--:|--:|")
	for _, c := range all {
		tr := c.traits
		fmt.Fprintf(&b, "| %s | %s | %s | %s; %s | %s | %s |\n", c.name, waiting(tr), yes(tr.Fencing), yes(tr.Shared), yes(tr.Slots),
			short(median(c.pairs)), short(median(c.handoffs)))
	}
	fmt.Fprintln(&b, "\nZooKeeper has semaphores in a layout of their own; Redisson's are types of their own (`redisson.Synchronizers`).")
	return b.String()
}

func waiting(t driver.Traits) string {
	switch {
	case t.Queue == driver.QueueHandoff:
		return "queue, handoff"
	case t.Queue == driver.QueueNone:
		return "no order"
	case t.Hints:
		return "queue, hints"
	}
	return "queue, polled"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// short has two digits that mean something.
func short(d time.Duration) string {
	switch {
	case d < 100*time.Microsecond:
		d = d.Round(time.Microsecond)
	case d < time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	default:
		d = d.Round(100 * time.Microsecond)
	}
	return strings.NewReplacer("µs", " µs", "ms", " ms").Replace(d.String())
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// key is what all clients want.
const key = "k"

// subject is a lock that is measured.
type subject struct {
	name    string
	signal  string       // what its holder asks whether it holds the key
	exact   bool         // it must not overlap, but for a stepped clock
	store   engines.Kind // Redlock: five Redis
	stepped int          // of the five: how many have their clock stepped
	faults  []fault      // those it is measured under; nil: all that its store can have
	open    locking
}

// locking makes a client, with connections of its own.
type locking func(context.Context, job) (locker, error)

// locker acquires the key, and waits for it. holds asks the library whether it is still held.
type locker func(context.Context) (holds func() bool, err error)

const byErr = "`Lease.Err`"

// subjects are hasp on each engine, and other locks with the best signal of a loss that their documentation names. Those without a
// renewal of their own are renewed every third of the TTL.
var subjects = []*subject{
	{name: "hasp, SQLite", signal: byErr, exact: true, store: engines.SQLite, open: haspOn(engines.SQLite, itself)},
	{name: "hasp, Redis", signal: byErr, exact: true, store: engines.Redis, open: haspOn(engines.Redis, itself)},
	{name: "hasp, Redis, by its context", signal: "`Err` of `Lease.Context`", exact: true, store: engines.Redis, open: haspOn(engines.Redis, during)},
	{name: "hasp, Redis, by a derived context", signal: "`Err` of a context made from that, which ends by a timer", store: engines.Redis, open: haspOn(engines.Redis, derived)},
	{name: "hasp, Redlock over five", signal: byErr + "; three of the clocks are stepped", exact: true, store: engines.Redlock, stepped: 3, open: haspOn(engines.Redlock, itself)},
	{name: "hasp, Redlock, one clock of five", signal: byErr, exact: true, store: engines.Redlock, stepped: 1, faults: []fault{clockStep}, open: haspOn(engines.Redlock, itself)},
	{name: "hasp, etcd", signal: byErr, exact: true, store: engines.Etcd, open: haspOn(engines.Etcd, itself)},
	{name: "hasp, ZooKeeper", signal: byErr, exact: true, store: engines.ZooKeeper, open: haspOn(engines.ZooKeeper, itself)},
	{name: "hasp, PostgreSQL", signal: byErr, exact: true, store: engines.Postgres, open: haspOn(engines.Postgres, itself)},
	{name: "hasp, MariaDB", signal: byErr, exact: true, store: engines.MariaDB, open: haspOn(engines.MariaDB, itself)},
	{name: "redsync, one Redis", signal: "`Until`, and a failed `Extend`, every TTL/3", store: engines.Redis, open: openRedsync},
	{name: "redsync, five Redis", signal: "the same; three of the clocks are stepped", store: engines.Redlock, stepped: 3, open: openRedsync},
	{name: "redislock", signal: "a failed `Refresh`, every TTL/3", store: engines.Redis, open: redislockOver(redis.Options{})},
	{name: "redislock, contexts obeyed", signal: "the same, each within TTL/3, with go-redis's `ContextTimeoutEnabled`", store: engines.Redis,
		open: redislockOver(redis.Options{ContextTimeoutEnabled: true})},
	{name: "rueidislock", signal: "its context; it renews every TTL/2", store: engines.Redis, open: openRueidislock},
	{name: "etcd `concurrency`", signal: "`Session.Done`", store: engines.Etcd, open: openConcurrency},
	{name: "go-zookeeper `Lock`", signal: "none: the lock has no signal", store: engines.ZooKeeper, open: zkLock(func(*zkLoss) bool { return true })},
	{name: "go-zookeeper `Lock`, by events", signal: "the connection's `StateDisconnected` or `StateExpired`", store: engines.ZooKeeper,
		open: zkLock(func(l *zkLoss) bool { return !l.Load() })},
}

func find(name string) *subject {
	if i := slices.IndexFunc(subjects, func(s *subject) bool { return s.name == name }); i >= 0 {
		return subjects[i]
	}
	return nil
}

// has reports whether it is measured under a fault.
func (s *subject) has(f fault) bool {
	switch {
	case s.faults != nil && !slices.Contains(s.faults, f):
		return false
	case f == partition:
		return s.store != engines.SQLite
	case f == clockStep:
		// A file is on the machine of its clients, and their monotonic clock decides. An etcd is a program in Go: its clock
		// cannot be stepped for it alone.
		return s.store != engines.SQLite && s.store != engines.Etcd
	}
	return true
}

// asked is what a holder asks.
type asked interface{ Err() error }

func itself(l *hasp.Lease) asked { return l }

func during(l *hasp.Lease) asked { return l.Context(context.Background()) }

func derived(l *hasp.Lease) asked {
	ctx, cancel := context.WithCancel(l.Context(context.Background()))
	context.AfterFunc(ctx, cancel)
	return ctx
}

// haspOn is hasp with an engine; its holder asks what is made of its lease.
func haspOn(k engines.Kind, of func(*hasp.Lease) asked) locking {
	return func(ctx context.Context, j job) (locker, error) {
		conn, err := engines.OpenFor(k, j.Addrs, j.TTL)
		if err != nil {
			return nil, err
		}
		c, err := conn.Client(nil)
		if err == nil && k == engines.Redlock {
			err = c.Operator().Admit(ctx) // the servers are new
		}
		return func(ctx context.Context) (func() bool, error) {
			lease, err := c.Mutex(key, &hasp.LockOptions{TTL: j.TTL}).Lock(ctx)
			if err != nil {
				return nil, err
			}
			a := of(lease)
			return func() bool { return a.Err() == nil }, nil
		}, err
	}
}

// pollEvery is how often a waiter asks that has to: often, so that no overlap hides behind its pause.
const pollEvery = 20 * time.Millisecond

func openRedsync(_ context.Context, j job) (locker, error) {
	var pools []redsyncredis.Pool
	for _, addr := range j.Addrs {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: addr})))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context) (func() bool, error) {
		m := rs.NewMutex(key, redsync.WithExpiry(j.TTL), redsync.WithTries(math.MaxInt32), redsync.WithRetryDelay(pollEvery))
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		var until atomic.Pointer[time.Time] // the mutex is not for two goroutines
		keep := func() { t := m.Until(); until.Store(&t) }
		keep()
		go func() {
			for range time.Tick(j.TTL / 3) {
				if ok, _ := m.ExtendContext(ctx); !ok {
					until.Store(&time.Time{})
					return
				}
				keep()
			}
		}()
		return func() bool { return time.Now().Before(*until.Load()) }, nil
	}, nil
}

func redislockOver(o redis.Options) locking {
	return func(_ context.Context, j job) (locker, error) {
		o.Addr = j.Addrs[0]
		c := redislock.New(redis.NewClient(&o))
		return func(ctx context.Context) (func() bool, error) {
			var lock *redislock.Lock
			err := context.DeadlineExceeded
			for errors.Is(err, context.DeadlineExceeded) { // it gives up after the TTL
				lock, err = c.Obtain(ctx, key, j.TTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pollEvery)})
			}
			if err != nil {
				return nil, err
			}
			var lost atomic.Bool
			go func() {
				for range time.Tick(j.TTL / 3) {
					within, cancel := context.WithTimeout(ctx, j.TTL/3)
					err := lock.Refresh(within, j.TTL, nil)
					cancel()
					if err != nil {
						lost.Store(true)
						return
					}
				}
			}()
			return func() bool { return !lost.Load() }, nil
		}, nil
	}
}

func openRueidislock(_ context.Context, j job) (locker, error) {
	c, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: j.Addrs},
		KeyValidity:  j.TTL,
		TryNextAfter: time.Second, // by default a server that stalls for 20 ms makes it wait for ever for a free key
		KeyMajority:  1, NoLoopTracking: true,
	})
	return func(ctx context.Context) (func() bool, error) {
		during, _, err := c.WithContext(ctx, key)
		return func() bool { return during.Err() == nil }, err
	}, err
}

func openConcurrency(_ context.Context, j job) (locker, error) {
	c, err := clientv3.New(clientv3.Config{ // as etcd's documentation sets one up
		Endpoints: j.Addrs, DialTimeout: 10 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(j.TTL/time.Second)))
	return func(ctx context.Context) (func() bool, error) {
		return func() bool {
			select {
			case <-s.Done():
				return false
			default:
				return true
			}
		}, concurrency.NewMutex(s, "/"+key).Lock(ctx)
	}, err
}

// zkLoss is set once a connection of go-zookeeper has said that it is cut off.
type zkLoss struct{ atomic.Bool }

func zkLock(holds func(*zkLoss) bool) locking {
	return func(_ context.Context, j job) (locker, error) {
		var loss zkLoss
		c, _, err := zk.Connect(j.Addrs, j.TTL, zk.WithLogInfo(false), zk.WithLogger(quiet{}), zk.WithEventCallback(func(e zk.Event) {
			if e.Type == zk.EventSession && (e.State == zk.StateDisconnected || e.State == zk.StateExpired) {
				loss.Store(true)
			}
		}))
		return func(context.Context) (func() bool, error) {
			loss.Store(false)
			err := zk.NewLock(c, "/overlap/"+key, zk.WorldACL(zk.PermAll)).Lock()
			return func() bool { return holds(&loss) }, err
		}, err
	}
}

// quiet drops what go-zookeeper says of every connection that breaks.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

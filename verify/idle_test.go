// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9"
)

// idleFor is for how long no client uses a store between two locks: longer than all that a store keeps for a while.
var idleFor = []time.Duration{time.Hour, 13 * time.Hour, 25 * time.Hour, 8 * 24 * time.Hour, 60 * 24 * time.Hour}

// idleOpen opens a driver of a client whose clock is ahead by so many microseconds.
type idleOpen func(t testing.TB, ahead *atomic.Int64) driver.Driver

// idleStart starts the servers of a store, with more in their environment.
type idleStart func(t testing.TB, env []string) idleOpen

// A store that no client used for hours, days or months grants a lock, at the first attempt, to a client that was there before and to a
// new one, and its fence is larger than all before. The servers' clocks are moved on for that (those of etcd, which is
// written in Go, cannot be: see testserver.Clock); a client's clock is its fences'.
func TestIdle(t *testing.T) {
	t.Parallel()
	of := func(k engines.Kind) idleStart {
		return func(t testing.TB, env []string) idleOpen {
			s := engines.Start(t, k, env...)
			return func(t testing.TB, _ *atomic.Int64) driver.Driver {
				c, err := engines.Open(k, s.Addrs())
				must(t, err)
				t.Cleanup(func() { _ = c.Disconnect() })
				return c.Driver
			}
		}
	}
	type client struct {
		moves bool          // its clock goes on with the servers'
		ahead time.Duration // of the right one
	}
	right := []client{{moves: true}}
	for _, c := range []struct {
		name    string
		start   idleStart
		clients []client
	}{
		{"Redis", idleRedis(0), right},
		{"Redis, node record", idleRedis(redlockMaxTTL), right},
		{"Redlock", idleRedlock, []client{{true, 0}, {true, -90 * time.Second}, {true, -time.Hour}, {true, 3 * time.Second}, {false, 0}}},
		{"PostgreSQL", of(engines.Postgres), right},
		{"MariaDB", of(engines.MariaDB), right},
		{"ZooKeeper", of(engines.ZooKeeper), right},
	} {
		for _, cl := range c.clients {
			name := c.name
			if len(c.clients) > 1 {
				name += ", clock of the client ahead by " + cl.ahead.String()
				if !cl.moves {
					name = c.name + ", clock of the client stands"
				}
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				clock := testserver.NewClock(t)
				open := c.start(t, clock.Env())
				var ahead atomic.Int64
				client := func(t testing.TB) *hasp.Client {
					locks, err := hasp.New(open(t, &ahead), nil)
					must(t, err)
					t.Cleanup(func() { _ = locks.Close() })
					return locks
				}
				o := &hasp.LockOptions{TTL: redlockMaxTTL}
				if c.name == string(engines.ZooKeeper) { // for a part of a session there
					o.TTL = 2 * time.Second
				}
				old, now, last := client(t), time.Duration(0), map[string]uint64{} // the fence of each key, as the store has it
				uses := func(by string, lock func(context.Context) (*hasp.Lease, error)) {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), soon)
					defer cancel()
					lease, err := lock(ctx)
					if err != nil {
						t.Fatalf("%s, at %v: %v", by, now, err)
					}
					fence := uint64(int64(lease.Fence()) + ahead.Load())
					if fence <= last[lease.Key()] {
						t.Errorf("%s, at %v: fence %d after %d", by, now, fence, last[lease.Key()])
					}
					last[lease.Key()] = fence
					release(t, lease)
				}
				ahead.Store(cl.ahead.Microseconds())
				uses("a client", old.Mutex("k", o).Lock)
				for i, gap := range idleFor {
					now += gap
					clock.Step(now)
					if cl.moves {
						ahead.Store((now + cl.ahead).Microseconds())
					}
					for _, fresh := range []bool{i%2 == 0, i%2 == 1} {
						if fresh {
							locks := client(t)
							uses("a new client", locks.Mutex("k", o).TryLock)
							uses("a new client, another key", locks.Mutex("other", o).Lock)
						} else {
							uses("a client from before", old.Mutex("k", o).TryLock)
							uses("a client from before, another key", old.Mutex("third", o).Lock)
						}
					}
				}
			})
		}
	}
}

// idleRedis starts one Redis; with maxTTL it keeps a node record.
func idleRedis(maxTTL time.Duration) idleStart {
	return func(t testing.TB, env []string) idleOpen {
		server := testserver.RedisIn(t, env)
		open := func(t testing.TB, _ *atomic.Int64) driver.Driver {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			if maxTTL == 0 {
				return redisdriver.New(rdb, nil)
			}
			return redisdriver.NewNode(rdb, maxTTL, nil)
		}
		if n, ok := open(t, nil).(voting.Recorded); ok {
			rec, err := n.Record(t.Context())
			if err == nil {
				err = n.Admit(t.Context(), rec, maxTTL)
			}
			must(t, err)
		}
		return open
	}
}

// idleRedlock starts three Redises of which a majority grants a lock.
func idleRedlock(t testing.TB, env []string) idleOpen {
	var servers []*testserver.Server
	for range 3 {
		servers = append(servers, testserver.RedisIn(t, env))
	}
	open := func(t testing.TB, ahead *atomic.Int64) driver.Driver {
		var nodes []voting.Node
		for _, s := range servers {
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			fast := func() time.Duration { return time.Duration(ahead.Load()) * time.Microsecond }
			nodes = append(nodes, broken.New(redisdriver.NewNode(rdb, redlockMaxTTL, nil), broken.Ahead(fast)))
		}
		return quorum.New(nodes, &quorum.Options{NodeTimeout: 5 * time.Second}) // for a busy machine
	}
	first := open(t, new(atomic.Int64))
	must(t, first.(*quorum.Driver).Admit(t.Context()))
	must(t, first.Close())
	return open
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/stall"
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

// holderEnv marks a process that holds a key.
const holderEnv = "HASP_VERIFY_HOLDER"

// holderMain turns this process into a holder when it was started as one, and does not return then.
func holderMain() {
	player.Main(holderEnv, func(in io.Reader, out io.Writer) error {
		return player.Work(in, out, func(j player.Job, observe func(context.Context, *event.Event)) (player.Locks, error) {
			return hasp.New(redisdriver.New(redis.NewClient(&redis.Options{Addr: j.Store}), nil), &hasp.Options{Observe: observe})
		})
	})
}

// holder is a process of its own that holds a key.
type holder struct {
	*player.Process
	fence  uint64
	events chan player.Event
}

// startHolder starts this program again as a holder of the key "k", and returns once it holds the
// key. It is killed when the test ends.
func startHolder(t *testing.T, addr string, ttl time.Duration) *holder {
	h := &holder{events: make(chan player.Event, 2)} // of one order
	var err error
	h.Process, err = player.Spawn(1, holderEnv, player.Job{Store: addr, TTL: ttl}, func(e player.Event) {
		if e.What == player.Granted || e.What == player.Failed || e.What == player.Ended {
			h.events <- e
		}
	})
	must(t, err)
	t.Cleanup(h.Kill)
	h.Send(player.Order{Wants: []player.Want{{Key: "k"}}, Hold: time.Hour, Bare: true})
	e := h.next(t)
	if e.What != player.Granted {
		t.Fatalf("the holder: %+v", e)
	}
	h.fence = e.Fence
	return h
}

// next returns what became of the order.
func (h *holder) next(t *testing.T) (e player.Event) {
	select {
	case e = <-h.events:
	case <-h.Ended:
		t.Fatalf("the holder ended: %s", h.Last())
	}
	return e
}

// Failure case 2. Rule: a process that was stopped for longer than the TTL finds the loss
// by its first check of the lease, and its fence is smaller than the next holder's.
func TestStoppedHolderFindsTheLoss(t *testing.T) {
	const ttl = 15 * time.Second
	s := testserver.Redis(t)
	h := startHolder(t, s.Addr(), ttl)
	must(t, h.Pause())
	next := mustLock(t, Locks(t, s.Addr(), nil).Mutex("k", &hasp.LockOptions{TTL: time.Hour}))
	h.Send(player.Order{Stop: true}) // which it reads when it goes on, and checks the lease
	must(t, h.Resume())
	if e := h.next(t); !e.Lost {
		t.Errorf("the first answer of the lease after the stop: %+v, want a loss", e)
	}
	if next.Fence() <= h.fence {
		t.Errorf("fence %d after %d", next.Fence(), h.fence)
	}
	if err := next.Extend(t.Context(), time.Hour); err != nil {
		t.Errorf("the next holder, after the other one went on: %v", err)
	}
	release(t, next)
}

// Failure case 14. Rule: when a holder is killed, the waiter has the key within the TTL plus a little, with no other traffic on it.
func TestKilledHolder(t *testing.T) {
	const ttl = 15 * time.Second
	s := testserver.Redis(t)
	h := startHolder(t, s.Addr(), ttl)
	events := newFeed()
	got := lockAsync(t.Context(), Locks(t, s.Addr(), events.observe).Mutex("k", &hasp.LockOptions{TTL: ttl}))
	events.waits(t)
	h.Kill()
	dead, lost := time.Now(), stall.Watch(t)
	lease, at := awaitLease(t, got)
	t.Logf("killed with -9; the waiter had the key %v later (TTL %v)", at.Sub(dead), ttl)
	if took := at.Sub(dead); took > ttl+little+lost() {
		t.Errorf("the waiter had the key %v after the holder's death, want %v", took, ttl)
	}
	if lease.Fence() <= h.fence {
		t.Errorf("fence %d after %d", lease.Fence(), h.fence)
	}
	release(t, lease)
}

// Failure case 28. Rule: 10,000 acquisitions that are released, cancelled or lost leave no goroutine, timer, connection or key.
func TestTenThousandCycles(t *testing.T) {
	s := testserver.Redis(t)
	adm := admin(t, s)
	run(t, adm, "ping")
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	locks, err := hasp.New(redisdriver.New(rdb, nil), nil)
	must(t, err)
	cycle(t, locks, 1000) // makes what is made only once: connections, buffers, the subscription
	goroutines, objects := settled()
	count := cycle(t, locks, 10_000)
	after, left := settled()
	t.Logf("%d released, %d cancelled, %d lost; goroutines %d before, %d after; %+d objects on the heap",
		count[0], count[1], count[2], goroutines, after, left-objects)
	if slices.Contains(count[:], 0) {
		t.Error("one of the ways to end did not occur: this run shows less than it should")
	}
	// The pool of go-redis has goroutines of its own for some of the time.
	if after > goroutines+5 {
		t.Errorf("%d goroutines more", after-goroutines)
	}
	if left-objects > 10_000/10 {
		t.Errorf("%d objects are left by 10,000 cycles", left-objects)
	}
	if err := errors.Join(locks.Close(), rdb.Close()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, adm)
	onlyOneConnection(t, adm)
}

// cycle runs n acquisitions by many workers on few keys, and counts how they ended.
func cycle(t *testing.T, locks *hasp.Client, n int) (count [3]int) {
	const workers, keys = 64, 16
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range (n + w) / workers {
				ended := once(t, locks, "k"+strconv.Itoa(rand.N(keys)), rand.N(len(count)))
				mu.Lock()
				count[ended]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return count
}

// once acquires and releases (0), gives up (1), or loses the lease (2), and returns what it came to.
func once(t *testing.T, locks *hasp.Client, key string, kind int) (ended int) {
	ctx, opts := t.Context(), &hasp.LockOptions{}
	switch kind {
	case 1:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(3*time.Millisecond))
		defer cancel()
	case 2:
		opts = &hasp.LockOptions{TTL: 20 * time.Millisecond, NoRenew: true}
	}
	lease, err := locks.Mutex(key, opts).Lock(ctx)
	if err != nil {
		if kind == 1 && errors.Is(err, context.DeadlineExceeded) || kind == 2 && tooSlow(err) {
			return 1
		}
		t.Error(err)
		return 1
	}
	work := lease.Context(t.Context())
	if kind == 2 {
		<-lease.Done()
	}
	err = lease.Release()
	<-work.Done()
	switch {
	case errors.Is(err, hasp.ErrLost) && time.Until(lease.Deadline()) <= 0:
		return 2 // a machine that stands still for half a second also loses a lease that was handed over, and is not claimed yet
	case err != nil || kind == 2:
		t.Errorf("Release: %v", err)
	}
	return 0
}

// tooSlow reports whether a Lock found the store too slow for its TTL: a busy machine has no answer within 20 ms.
func tooSlow(err error) bool {
	var e *hasp.Error
	return errors.As(err, &e) && (e.Class == driver.ClassUnreachable || e.Class == driver.ClassUnknown)
}

// settled returns the numbers of goroutines and of objects on the heap, once the background work has ended.
func settled() (goroutines, objects int) {
	goroutines = runtime.NumGoroutine()
	for same := 0; same < 20; time.Sleep(10 * time.Millisecond) {
		if n := runtime.NumGoroutine(); n < goroutines {
			goroutines, same = n, 0
		} else {
			same++
		}
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one finalized
	runtime.ReadMemStats(&m)
	return goroutines, int(m.HeapObjects)
}

// onlyOneConnection fails the test unless the server soon has no connection but adm's own.
func onlyOneConnection(t *testing.T, adm *redis.Client) {
	t.Helper()
	var list string
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		list = adm.ClientList(t.Context()).Val()
		if strings.Count(strings.TrimSpace(list), "\n") == 0 {
			return
		}
	}
	t.Errorf("connections are left:\n%s", list)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/fault"
)

// The cases of this file use package hasp, with other types of lock than Mutex.
var coreModeCases = []Case{
	{Name: "RLocksHoldTogether",
		Rule:  "Several clients hold read leases together, a Lock waits for all of them, and a later RLock waits for the Lock.",
		Needs: sharedQueue,
		play: `trylock r1; trylock r2; begin w; begin r3 on=r1; begin r4 on=r2; unlock r1; still w; unlock r2; comes w; still r3;
			unlock w; comes r3 later=w; comes r4 later=w; unlock r3 r4; free`},
	{Name: "WriterIsNotStarved",
		Rule:  "Under a stream of readers, of which some hold the key at any time, a Lock is granted before every reader that began to wait after it, that is, after one reader's hold.",
		Needs: sharedQueue, claims: true, run: writerIsNotStarved},
	{Name: "ReadersOutliveManyTTLs",
		Rule:  "Each read lease is renewed for as long as it is held, and a writer keeps its place for as long as it waits.",
		Needs: sharedQueue, timely: true,
		play: `trylock r1 short; trylock r2 short; begin w short; stands r1 r2 w; unlock r1; stands r2 w; unlock r2;
			comes w in=ttl; unlock w; gone`},
	{Name: "LossOfAReaderIsKnownBeforeTheWriter",
		Rule:  "A reader that is cut off right after a renewal learns of its loss before a writer elsewhere has the key.",
		Needs: shared, timely: true, run: func(e *env) {
			lossBeforeGrant(e, func(c *hasp.Client) *hasp.Lease { return e.must(c.RWMutex("k", e.short()).TryRLock(e.ctx)) })
		}},
	{Name: "DowngradeLetsReadersEnter",
		Rule:  "Downgrade keeps the lease and its fence, and waiting readers are granted the key at once, while a writer behind them waits until all are gone.",
		Needs: sharedQueue,
		play: `trylock w1; begin r1; begin w2; downgrade w1; comes r1; shares w1 same; unlock w1; still w2; unlock r1; comes w2;
			unlock w2; free`},
	{Name: "LostReplyOfADowngrade", // failure case 13
		Rule:  "When the reply to a Downgrade is lost, or the request reaches the store twice, asking again has the outcome of the first.",
		Needs: shared, run: lostDowngrade},
	{Name: "SemaphoreNumbersItsSlots",
		Rule:  "The leases of a semaphore have different slots below n, and a waiter is granted the one that was released.",
		Needs: slotsQueue,
		play: `trylock s0/3 slot=0; trylock s1/3 slot=1; trylock s2/3 on=s0/3 slot=2; busy s3/3 on=s0/3;
			begin s4/3 on=s1/3; unlock s1/3; comes s4/3 slot=1; begin s5/3 on=s0/3; unlock s0/3; comes s5/3 slot=0;
			begin s6/3 on=s0/3; unlock s2/3; comes s6/3 slot=2; begin s7/3 on=s1/3; unlock s4/3; comes s7/3 slot=1;
			unlock s5..s7/3; free`},
	{Name: "LockAllInAnyOrder",
		Rule: "Clients that lock several keys at once, in whatever order they name them, all have their turn, each alone; TryLockAll acquires all or none.",
		run:  lockAllInAnyOrder},
	{Name: "LostPartEndsAll",
		Rule:   "When one of the keys of a LockAll is lost all its contexts end, and Release releases the others.",
		timely: true, run: lostPartEndsAll},
	{Name: "VanishedHolderAbandons", // VMS's invalid value block
		Rule:  "The lease after a vanished holder says that the key was abandoned, and the one after that does not.",
		Needs: marks,
		play:  "grant d brief; lock a marked; unlock a; lock b on=a unmarked; unlock b"},
	{Name: "WantedComesWithARenewal",
		Rule:  "A lease's Wanted is closed soon after an owner began to wait for its key, and not before.",
		Needs: queueing, timely: true, run: wantedComes},
}

// must returns the lease, and fails if there is none.
func (e *env) must(lease *hasp.Lease, err error) *hasp.Lease {
	e.Helper()
	if err != nil {
		e.Fatalf("not granted: %v", err)
	}
	return lease
}

// stillWaits fails if the Lock has returned.
func (w *waiting) stillWaits(why string) {
	w.Helper()
	select {
	case <-w.done:
		w.Fatalf("the lock returned (%v) %s", w.err, why)
	default:
	}
}

// crowd is what the readers of a case and its writer know of each other.
type crowd struct {
	inQueue atomic.Bool           // the writer is
	early   atomic.Int64          // readers that began after that and were granted before it
	written atomic.Bool           // the writer has the key, or had it
	failed  atomic.Pointer[error] // of a reader
}

// read holds the key for so long, beside other readers.
func (c *crowd) read(ctx context.Context, e *env, client *hasp.Client, holds time.Duration) {
	late := c.inQueue.Load()
	lease, err := client.RWMutex("k", e.lasting()).RLock(ctx)
	if late && err == nil && !c.written.Load() {
		c.early.Add(1)
	}
	if err == nil {
		time.Sleep(holds)
		start := time.Now()
		if err = lease.Release(); time.Since(start) > claimed {
			e.freed.Store(&start) // the writer's claim may take as long
		}
	}
	if err != nil {
		c.failed.Store(&err)
	}
}

// writerIsNotStarved starts a reader every 10 ms, which holds the key for 20 times as
// long, so that it is never free.
func writerIsNotStarved(e *env) {
	const every, holds = 10 * time.Millisecond, 200 * time.Millisecond
	readers := 100
	if !e.traits.Hints {
		readers = 40 // twice what holds the key at any time; more of them that poll are more than a slow machine's database serves
	}
	clients := []*hasp.Client{e.client(nil), e.client(nil), e.client(nil)}
	c := &crowd{}
	ctx, cancel := context.WithCancel(e.ctx)
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	begin := make(chan struct{})
	wg.Go(func() {
		for i := range readers {
			if i == readers/2 {
				close(begin)
			}
			wg.Go(func() { c.read(ctx, e, clients[i%2], holds) })
			time.Sleep(every)
		}
	})
	<-begin
	w := e.startLock(clients[2].RWMutex("k", e.lasting()).Lock)
	start := time.Now()
	e.eventually(0, "the writer waits in the queue", func() bool {
		for _, h := range e.inspect("k").Queue {
			c.inQueue.Store(c.inQueue.Load() || h.Mode == driver.Exclusive)
		}
		select {
		case <-w.done:
			return true
		default:
			return c.inQueue.Load()
		}
	})
	lease := w.granted(holds)
	waited := time.Since(start)
	overtook := c.early.Load()
	c.written.Store(true)
	released := lease.Release()
	e.over(&wg, "not all readers had their turns")
	e.Logf("the writer waited %v under readers that hold for %v", waited, holds)
	switch err := c.failed.Load(); {
	case err != nil:
		e.Fatalf("RLock or Release of a reader: %v", *err)
	case released != nil:
		e.Fatalf("Release: %v", released)
	case overtook > 0:
		e.Fatalf("%d readers that began after the writer were granted before it", overtook)
	case e.fake && waited > holds+e.slack:
		e.Fatalf("the writer waited %v, want one reader's hold of %v and a handoff", waited, holds)
	}
}

// over waits until all goroutines have had their turns.
func (e *env) over(wg *sync.WaitGroup, not string) {
	e.Helper()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	e.comes(done, time.Minute, not)
}

func lostDowngrade(e *env) {
	for _, f := range []fault.Fault{{Lost: fault.ErrLink}, {Twice: true}} {
		var once atomic.Bool
		c := e.client(func(call fault.Call) fault.Fault {
			if call.Op == fault.Try && call.Try.Convert && once.CompareAndSwap(false, true) {
				return f
			}
			return fault.Fault{}
		})
		lease := e.must(c.RWMutex("k", e.lasting()).TryLock(e.ctx))
		fence := lease.Fence()
		if err := lease.Downgrade(e.ctx); err != nil {
			e.Fatalf("Downgrade: %v", err)
		}
		reads := e.must(e.client(nil).RWMutex("k", e.lasting()).TryRLock(e.ctx))
		if err := lease.Err(); err != nil || lease.Fence() != fence {
			e.Errorf("downgraded: fence %d after %d, %v", lease.Fence(), fence, err)
		}
		e.unlock(lease)
		e.unlock(reads)
		e.free("k")
	}
}

func lockAllInAnyOrder(e *env) {
	const rounds = 5
	orders := [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a", "b"}, {"c", "a"}}
	var holders atomic.Int64 // of "a", which all have
	ctx, cancel := context.WithCancel(e.ctx)
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	for _, keys := range orders {
		c := e.client(nil)
		var items []hasp.Locker
		for _, key := range keys {
			items = append(items, c.Mutex(key, e.lasting()))
		}
		wg.Go(func() {
			for range rounds {
				all, err := hasp.LockAll(ctx, items...)
				if err != nil {
					e.Errorf("LockAll of %q: %v", keys, err)
					return
				}
				if n := holders.Add(1); n != 1 || len(all.All()) != len(keys) {
					e.Errorf("%d hold one key; %d leases of %q", n, len(all.All()), keys)
				}
				time.Sleep(time.Millisecond)
				holders.Add(-1)
				if err := all.Release(); err != nil {
					e.Errorf("Release of %q: %v", keys, err)
				}
			}
		})
	}
	e.over(&wg, "they wait for each other: not all had their turns")
	b := e.ask("b")
	e.grant(e.d, b)
	if all, err := e.client(nil).TryLockKeys(e.ctx, "c", "b", "a"); !errors.Is(err, hasp.ErrHeld) {
		e.Errorf("TryLockAll while one key is held: %v, %v, want ErrHeld", all, err)
	}
	e.eventually(0, "a TryLockAll that was refused left nothing", func() bool {
		return !e.inspect("a").Held && !e.inspect("c").Held && e.inspect("b").Waiters == 0
	})
	e.release(e.d, b)
}

func lostPartEndsAll(e *env) {
	c := e.client(nil)
	all, err := hasp.LockAll(e.ctx, c.Mutex("b", e.short()), c.Mutex("a", e.short()))
	if err != nil {
		e.Fatalf("LockAll: %v", err)
	}
	ctx := all.Context(e.ctx)
	lost := all.All()[0] // of "b"
	if err := e.client(nil).Break(e.ctx, "b", lost.Owner()); err != nil {
		e.Fatalf("Break: %v", err)
	}
	e.comes(ctx.Done(), 2*e.ttl+e.slack, "the context has not ended")
	if err := context.Cause(ctx); !errors.Is(err, hasp.ErrLost) || !errors.Is(all.Err(), hasp.ErrLost) {
		e.Errorf("the context ended with %v, the leases say %v, want ErrLost", err, all.Err())
	}
	if err := all.Release(); !errors.Is(err, hasp.ErrLost) {
		e.Errorf("Release: %v, want ErrLost", err)
	}
	e.eventually(0, "the other key is free", func() bool { return !e.inspect("a").Held })
}

func wantedComes(e *env) {
	for range 20 {
		lease := e.lock(e.client(nil), e.short())
		select {
		case <-lease.Wanted():
			e.Fatal("Wanted, but nobody waits")
		case <-lease.Done():
			_ = lease.Release() // this machine stood still for a TTL
			continue
		case <-time.After(e.ttl): // time for renewals
		}
		w := e.begin(e.client(nil), e.lasting())
		select {
		case <-lease.Wanted():
			e.unlock(lease)
			e.unlock(w.granted(0))
			return
		case <-lease.Done():
		case <-time.After(e.ttl + e.slack):
			e.Fatal("not Wanted, but somebody waits")
		}
		_ = lease.Release()
		e.unlock(w.granted(e.ttl))
	}
	e.Fatal("20 leases were lost within a TTL")
}

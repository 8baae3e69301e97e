// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/fault"
)

// coreCases use package hasp: what it promises on any engine must be true on this one.
var coreCases = []Case{
	{Name: "LockWaitsItsTurn", // promise 4
		Rule: "Lock waits while another client holds the key, and returns soon after its release.",
		play: "lock a; begin b; stands b for=half; unlock a; comes b later=a; unlock b; free"},
	{Name: "LockIsFirstComeFirstServed", Needs: queueing, // promise 4, failure case 24
		Rule: "Locks on several clients are granted in the order in which they began to wait.",
		play: "lock b0 spread; begin b1..b9 spread;" + each(rounds(9), "unlock b#; comes b#+1 alone") + "unlock b9; free"},
	{Name: "LockOutlivesManyTTLs", Needs: queueing, timely: true, // promises 3 and 4
		Rule: "A lease is renewed for as long as it is held, and a waiter keeps its place for as long as it waits.",
		play: `lock a short; begin b short; begin c short; stands a b c; unlock a; comes b in=ttl later=a; stands b c; unlock b;
			comes c in=ttl later=b; unlock c; gone`},
	{Name: "CancelledLockLeavesNothing", // promises 4 and 6, failure cases 11 and 18
		Rule: "A Lock whose context ends returns its error and the holder, leaves no place, and makes no waiter behind it wait.",
		play: `lock a; begin b; begin c on=b; cancel b by=a; queue? until waiters=1 soon; unlock a; comes c; unlock c; free`},
	{Name: "CancelAtAnyMoment", // promise 6, failure case 11
		Rule: "Whenever the context of a Lock ends, either it returns a lease or the store soon has nothing of it.",
		run:  cancelAtAnyMoment},
	{Name: "ReleaseNeedsNoContext", timely: true, // promise 5, failure cases 12 and 19
		Rule: "The context of Lock bounds only the wait: the lease outlives it, and Release works after it has ended.",
		play: "lock a short; stands a; unlock a; free"},
	{Name: "ClientCloseLeavesNothing", // promise 6, failure case 12
		Rule: "Close ends waits, releases what is held, and leaves nothing in the store.",
		run:  clientClose},
	{Name: "VanishedHolderDelaysForItsTTL", // failure case 14
		Rule: "A waiting Lock is granted the key of a holder that vanished right after its grant within little more than the TTL.",
		play: "grant a brief; lock b after=a; unlock b; free"},
	{Name: "VanishedWaiterDelaysForItsPatience", Needs: queueing, timely: true, // promise 4
		Rule: "A waiter that vanished delays those behind it for its patience and its claim, and no longer.",
		play: "lock a; join d brief; begin b; unlock a; comes b in=3ttl; unlock b; gone in=ttl"},
	{Name: "LossIsKnownBeforeTheNextGrant", // promises 1 and 2, failure case 1
		Rule:   "A holder that is cut off right after a renewal learns of its loss before a waiter elsewhere has the key.",
		timely: true, run: func(e *env) {
			lossBeforeGrant(e, func(c *hasp.Client) *hasp.Lease { return e.lock(c, e.short()) })
		}},
	{Name: "LockOutlivesAShortOutage", timely: true, // promise 7, failure case 16
		Rule: "A store that is unreachable for less than the TTL fails neither a waiting Lock nor a held lease.",
		play: "lock a short faulty; begin b short faulty; outage; stands a b; unlock a; comes b in=ttl; unlock b; gone in=ttl"},
	{Name: "OutageAtTheTurn", timely: true, // promise 7, failure case 16
		Rule: "A waiter whose turn comes while the store is unreachable for less than the TTL is granted the key afterwards.",
		play: "lock a short; begin b short faulty; stands b; outage; unlock a; comes b in=3ttl; unlock b; gone in=ttl"},
	{Name: "LostRepliesDoNoHarm", timely: true, // failure case 13
		Rule: "When the reply to an acquire, a renewal or a release is lost, asking again has the outcome of the first.",
		play: "lock a short lossy soon; stands a; unlock a; free; lock b; begin c forgetful; unlock b; comes c in=ttl; unlock c; free"},
	{Name: "DuplicatedRequestsDoNothing", // failure case 13
		Rule: "Requests that reach the store twice have the outcome of one.",
		play: "lock b0 twice; begin b1 twice asking; unlock b0; comes b1 later=b0;" +
			each([]string{"1", "2", "3", "4"}, "begin b#+1 on=b#-1; unlock b#; comes b#+1 later=b#") + "unlock b5; free"},
	{Name: "BreakEndsExactlyOneOwner",
		Rule:   "Break takes the key from the named owner, whose lease is lost, and from no other.",
		timely: true, run: breakOwner},
	{Name: "AdoptedLeaseGoesOn", timely: true,
		Rule: "A lease that another client adopts keeps its fence and is renewed there.",
		play: "grant a brief; adopt b short from=a; stands b; held a; unlock b; free"},
	{Name: "KeptKeyGoesToWhoWaits",
		Rule:  "A client that keeps a key takes it again with rising fences, and gives it back once its renewal says that somebody waits.",
		Needs: queueing, timely: true, run: keptKey},
	{Name: "NoGoroutineStays", // promise 6, failure case 28
		Rule: "After many locks, waits that were cancelled, lost leases and Close no goroutine is left.",
		run:  noGoroutineStays},
	{Name: "RLocksHoldTogether", Needs: sharedQueue,
		Rule: "Several clients hold read leases together, a Lock waits for all of them, and a later RLock waits for the Lock.",
		play: `trylock r1; trylock r2; begin w; begin r3 on=r1; begin r4 on=r2; unlock r1; still w; unlock r2; comes w; still r3;
			unlock w; comes r3 later=w; comes r4 later=w; unlock r3 r4; free`},
	{Name: "WriterIsNotStarved",
		Rule:  "Under a stream of readers, of which some hold the key at any time, a Lock is granted before every reader that began to wait after it, that is, after one reader's hold.",
		Needs: sharedQueue, claims: true, run: writerIsNotStarved},
	{Name: "ReadersOutliveManyTTLs", Needs: sharedQueue, timely: true,
		Rule: "Each read lease is renewed for as long as it is held, and a writer keeps its place for as long as it waits.",
		play: `trylock r1 short; trylock r2 short; begin w short; stands r1 r2 w; unlock r1; stands r2 w; unlock r2;
			comes w in=ttl; unlock w; gone`},
	{Name: "LossOfAReaderIsKnownBeforeTheWriter",
		Rule:  "A reader that is cut off right after a renewal learns of its loss before a writer elsewhere has the key.",
		Needs: shared, timely: true, run: func(e *env) {
			lossBeforeGrant(e, func(c *hasp.Client) *hasp.Lease { return e.must(c.RWMutex("k", e.short()).TryRLock(e.ctx)) })
		}},
	{Name: "DowngradeLetsReadersEnter", Needs: sharedQueue,
		Rule: "Downgrade keeps the lease and its fence, and waiting readers are granted the key at once, while a writer behind them waits until all are gone.",
		play: `trylock w1; begin r1; begin w2; downgrade w1; comes r1; shares w1 same; unlock w1; still w2; unlock r1; comes w2;
			unlock w2; free`},
	{Name: "LostReplyOfADowngrade", Needs: shared, // failure case 13
		Rule: "When the reply to a Downgrade is lost, or the request reaches the store twice, asking again has the outcome of the first.",
		play: `lock w1 lossy; downgrade w1; trylock r1; shares w1 same; unlock w1 r1; free;
			lock w2 twice; downgrade w2; trylock r2; shares w2 same; unlock w2 r2; free`},
	{Name: "SemaphoreNumbersItsSlots", Needs: slotsQueue,
		Rule: "The leases of a semaphore have different slots below n, and a waiter is granted the slot that was released.",
		play: `trylock s0/3 slot=0; trylock s1/3 slot=1; trylock s2/3 on=s0/3 slot=2; busy s3/3 on=s0/3;
			begin s4/3 on=s1/3; unlock s1/3; comes s4/3 slot=1; begin s5/3 on=s0/3; unlock s0/3; comes s5/3 slot=0;
			begin s6/3 on=s0/3; unlock s2/3; comes s6/3 slot=2; begin s7/3 on=s1/3; unlock s4/3; comes s7/3 slot=1;
			unlock s5..s7/3; free`},
	{Name: "LockAllInAnyOrder",
		Rule: "Clients that lock several keys at once, in whatever order they name them, all have their turn, each alone; Locks.TryLock acquires all or none.",
		run:  lockAllInAnyOrder},
	{Name: "LostPartEndsAll",
		Rule:   "When one of the keys of Locks is lost all its contexts end, and Release releases the others.",
		timely: true, run: lostPartEndsAll},
	{Name: "VanishedHolderAbandons", Needs: marks, // VMS's invalid value block
		Rule: "The lease after a vanished holder says that the key was abandoned, and the one after that does not.",
		play: "grant d brief; lock a marked; unlock a; lock b on=a unmarked; unlock b"},
	{Name: "WantedComesWithARenewal", Needs: queueing, timely: true,
		Rule: "A lease's Wanted is closed soon after an owner began to wait for its key, and not before.",
		play: "lock a short; stands a; unwanted a; begin b; wanted a; unlock a; comes b; unlock b"},
}

func cancelAtAnyMoment(e *env) {
	c := e.client(nil)
	for i := range 60 {
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(i)*30*time.Microsecond)
		var holder *hasp.Lease
		if i%2 == 1 {
			holder = e.lock(c, e.lasting())
		}
		lease, err := c.Mutex("k", e.lasting()).Lock(ctx)
		cancel()
		switch {
		case err == nil:
			e.unlock(lease)
		case !errors.Is(err, context.DeadlineExceeded):
			e.Fatalf("Lock: %v", err)
		}
		if holder != nil {
			e.unlock(holder)
		}
		e.goneFrom(0)
	}
}

func clientClose(e *env) {
	c, other := e.client(nil), e.client(nil)
	holder := e.lock(c, e.lasting())
	w := e.begin(c, e.lasting())
	behind := e.begin(other, e.lasting())
	if err := c.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	<-w.done
	if !errors.Is(w.err, hasp.ErrClosed) || !errors.Is(holder.Err(), hasp.ErrClosed) {
		e.Errorf("the wait ended with %v, the lease with %v, want ErrClosed", w.err, holder.Err())
	}
	e.unlock(behind.granted(0))
	e.goneFrom(0)
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
	if !e.traits.Tells.Has(driver.TellsFree) {
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
		e.failed(classOf(*err), *err, "RLock or Release of a reader")
	case released != nil:
		e.failed(classOf(released), released, "Release")
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
	comes(e, done, time.Minute, not)
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
				all, err := hasp.Locks(items).Lock(ctx)
				if err != nil {
					e.Errorf("Locks.Lock of %q: %v", keys, err)
					return
				}
				if n := holders.Add(1); n != 1 || len(all.All()) != len(keys) {
					e.Errorf("%d hold one key; %d leases of %q", n, len(all.All()), keys)
				}
				time.Sleep(time.Millisecond)
				holders.Add(-1)
				if err := all.Release(); err != nil && e.proves(classOf(err), err, "Release") {
					e.Errorf("Release of %q: %v", keys, err)
				}
			}
		})
	}
	e.over(&wg, "they wait for each other: not all had their turns")
	b := e.ask("b")
	e.grant(e.d, b)
	two := e.client(nil)
	if all, err := (hasp.Locks{two.Mutex("c", nil), two.Mutex("b", nil), two.Mutex("a", nil)}).TryLock(e.ctx); !errors.Is(err, hasp.ErrHeld) {
		e.Errorf("Locks.TryLock while one key is held: %v, %v, want ErrHeld", all, err)
	}
	e.eventually(0, "a Locks.TryLock that was refused left nothing", func() bool {
		return !e.inspect("a").Held && !e.inspect("c").Held && e.inspect("b").Waiters == 0
	})
	e.release(e.d, b)
}

func lostPartEndsAll(e *env) {
	c := e.client(nil)
	all, err := hasp.Locks{c.Mutex("b", e.short()), c.Mutex("a", e.short())}.Lock(e.ctx)
	if err != nil {
		e.Fatalf("Locks.Lock: %v", err)
	}
	ctx := all.Context(e.ctx)
	lost := all.All()[0] // of "b"
	if err := e.client(nil).Operator().Break(e.ctx, "b", lost.Owner()); err != nil {
		e.Fatalf("Break: %v", err)
	}
	comes(e, ctx.Done(), 2*e.ttl+e.slack, "the context has not ended")
	if err := context.Cause(ctx); !errors.Is(err, hasp.ErrLost) || !errors.Is(all.Err(), hasp.ErrLost) {
		e.Errorf("the context ended with %v, the leases say %v, want ErrLost", err, all.Err())
	}
	if err := all.Release(); !errors.Is(err, hasp.ErrLost) {
		e.Errorf("Release: %v, want ErrLost", err)
	}
	e.eventually(0, "the other key is free", func() bool { return !e.inspect("a").Held })
}

// keptKey uses a key that is kept, as far as the engine reserves fences, and has it given back
// to a waiter.
func keptKey(e *env) {
	first := e.lock(e.client(nil), e.lasting())
	fence := first.Fence()
	e.unlock(first)
	rises := func(next uint64) {
		e.Helper()
		if e.traits.Fencing && next <= fence {
			e.Fatalf("the fence is %d after %d", next, fence)
		}
		fence = next
	}
	var tries atomic.Int64
	c := e.client(func(call fault.Call) (f fault.Fault) {
		if call.Op == fault.Try {
			tries.Add(1)
		}
		return f
	})
	o := e.short()
	o.Keep = e.long
	const uses = 10
	for range uses {
		lease := e.lock(c, o)
		rises(lease.Fence())
		e.unlock(lease)
	}
	if !e.inspect("k").Held { // one fence at a time, or a machine that stalled for a TTL
		c := e.client(nil)
		rises(e.lock(c, e.lasting()).Fence())
		return
	}
	if n := tries.Load(); n >= uses {
		e.Errorf("it is kept, and the store was asked %d times", n)
	}
	other := e.startLock(e.client(nil).Mutex("k", e.lasting()).Lock).granted(e.ttl)
	rises(other.Fence())
	back := e.begin(c, o)
	select {
	case <-back.done:
		e.Fatalf("two holders: %v, %v", back.lease, back.err)
	case <-time.After(e.ttl / 2): // enough for a Lock that does not wait to return
	}
	e.unlock(other)
	lease := back.granted(0)
	rises(lease.Fence())
	e.unlock(lease)
	if err := c.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	e.goneFrom(0)
}

// link is a script that can cut a client off: its requests are dropped.
type link struct{ cut atomic.Bool }

func (l *link) script(fault.Call) fault.Fault { return fault.Fault{Hang: l.cut.Load()} }

func lossBeforeGrant(e *env, lock func(*hasp.Client) *hasp.Lease) {
	var l link
	renewed := make(chan struct{}, 1)
	c := e.observed(l.script, func(_ context.Context, ev *event.Event) {
		if ev.Kind == event.Renewed && l.cut.CompareAndSwap(false, true) {
			renewed <- struct{}{}
		}
	})
	lease := lock(c)
	w := e.begin(e.client(nil), e.lasting())
	for tries := 1; !e.outlives(lease, renewed, &l); tries++ { // this machine stalled for a TTL
		if tries == 20 {
			e.Fatal("20 leases ended before they were renewed")
		}
		_ = lease.Release()
		e.unlock(w.granted(e.ttl))
		lease = lock(c)
		w = e.begin(e.client(nil), e.lasting())
	}
	deadline := lease.Deadline()
	<-lease.Done()
	ended := time.Now()
	next := w.granted(2 * e.ttl)
	if !deadline.Before(w.at) {
		e.Errorf("the deadline of the holder was %v after the waiter had the key", deadline.Sub(w.at))
	}
	if !ended.Before(w.at.Add(e.lost())) {
		e.Errorf("the holder learned it %v after the waiter had the key", ended.Sub(w.at))
	}
	if err := lease.Err(); !errors.Is(err, hasp.ErrLost) {
		e.Errorf("the lease says %v, want ErrLost", err)
	}
	l.cut.Store(false)
	if err := lease.Release(); !errors.Is(err, hasp.ErrLost) {
		e.Errorf("Release of a lost lease: %v, want ErrLost", err)
	}
	if err := next.Err(); err != nil {
		e.Errorf("the successor's lease: %v", err)
	}
	e.unlock(next)
}

// outlives waits for the renewal at which l cuts the client off, and is false when the
// lease ended before.
func (e *env) outlives(lease *hasp.Lease, renewed <-chan struct{}, l *link) bool {
	e.Helper()
	select {
	case <-renewed:
		return true
	case <-lease.Done():
		return l.cut.Load() // then it ended as it should
	case <-time.After(e.ttl + e.slack + e.stalled()):
		e.Fatal("the lease was neither renewed nor lost")
		return false
	}
}

func breakOwner(e *env) {
	holder := e.lock(e.client(nil), e.short())
	w := e.begin(e.client(nil), e.lasting())
	op := e.client(nil)
	if err := op.Operator().Break(e.ctx, "k", e.ask("k").Owner); !errors.Is(err, hasp.ErrNotHeld) {
		e.Errorf("Break of an owner without the key: %v, want ErrNotHeld", err)
	}
	if err := op.Operator().Break(e.ctx, "k", holder.Owner()); err != nil {
		e.Fatalf("Break: %v", err)
	}
	next := w.granted(0)
	if err := op.Operator().Break(e.ctx, "k", holder.Owner()); !errors.Is(err, hasp.ErrNotHeld) {
		e.Errorf("Break of the one before: %v, want ErrNotHeld", err)
	}
	<-holder.Done()
	if err := holder.Release(); !errors.Is(err, hasp.ErrLost) {
		e.Errorf("Release of a broken lease: %v, want ErrLost", err)
	}
	if err := next.Err(); err != nil {
		e.Errorf("the successor's lease: %v", err)
	}
	e.heldBy(contend.Owner{Key: "k", Owner: next.Owner(), Label: e.inspect("k").Holder.Label})
	e.unlock(next)
}

// noGoroutineStays knows the goroutines of the case by their profiler label,
// which each hands down to those it starts.
func noGoroutineStays(e *env) {
	d := e.store.Open() // its pools belong to the caller, and stay open
	if _, err := d.Inspect(e.ctx, "k"); err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	id := rand.Text()
	pprof.Do(e.ctx, pprof.Labels("drivertest", id), func(context.Context) { comeAndGo(e, d) })
	e.goneFrom(0) // by another driver: its client may begin goroutines of its own
	var n int
	var stacks string
	defer func() {
		if n > 0 {
			e.Logf("%d goroutines:\n%s", n, stacks)
		}
	}()
	e.eventually(0, "the goroutines have ended", func() bool {
		n, stacks = labelled(id)
		return n == 0
	})
}

// comeAndGo acquires, gives up and loses leases many times, and closes the client.
func comeAndGo(e *env, d driver.Driver) {
	c, err := hasp.New(d, nil)
	if err != nil {
		e.Fatalf("hasp.New: %v", err)
	}
	const workers = 8
	rounds, o := 25, e.lasting() // on a busy machine a brief lease would be lost before Close
	if e.fake {
		rounds, o = manyFake/workers, e.short()
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				ctx, cancel := context.WithTimeout(e.ctx, time.Duration((w+i)%7)*time.Millisecond)
				lease, err := c.Mutex("k", o).Lock(ctx)
				cancel()
				if err != nil {
					continue
				}
				lease.Context(e.ctx)
				if (w+i)%9 != 0 {
					_ = lease.Release()
				}
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
}

// labelled counts the goroutines with a label, and returns their stacks.
func labelled(id string) (n int, stacks string) {
	var dump strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&dump, 1); err != nil {
		return 1, err.Error()
	}
	for group := range strings.SplitSeq(dump.String(), "\n\n") {
		if !strings.Contains(group, id) {
			continue
		}
		count, _, _ := strings.Cut(group, " @")
		same, _ := strconv.Atoi(count) // the profile's first line is a header
		n += max(same, 1)
		stacks += group + "\n"
	}
	return n, stacks
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/fault"
)

// The cases of this file use package hasp: what it promises on any engine must be true
// on this one.
var coreCases = []Case{
	{Name: "LockWaitsItsTurn", // promise 4
		Rule: "Lock waits while another client holds the key, and returns soon after its release.",
		play: "lock a; begin b; stands b for=half; unlock a; comes b later=a; unlock b; free"},
	{Name: "LockIsFirstComeFirstServed", // promise 4, failure case 24
		Rule:  "Locks on several clients are granted in the order in which they began to wait.",
		Needs: queueing,
		play:  "lock b0 spread; begin b1..b9 spread;" + each(rounds(9), "unlock b#; comes b#+1 alone") + "unlock b9; free"},
	{Name: "LockOutlivesManyTTLs", // promises 3 and 4
		Rule:  "A lease is renewed for as long as it is held, and a waiter keeps its place for as long as it waits.",
		Needs: queueing, timely: true,
		play: `lock a short; begin b short; begin c short; stands a b c; unlock a; comes b in=ttl later=a; stands b c; unlock b;
			comes c in=ttl later=b; unlock c; gone`},
	{Name: "CancelledLockLeavesNothing", // promises 4 and 6, failure cases 11 and 18
		Rule: "A Lock whose context ends returns its error and the holder, leaves no place, and makes nobody behind it wait.",
		run:  cancelledLock},
	{Name: "CancelAtAnyMoment", // promise 6, failure case 11
		Rule: "Whenever the context of a Lock ends, either it returns a lease or the store soon has nothing of it.",
		run:  cancelAtAnyMoment},
	{Name: "ReleaseNeedsNoContext", // promise 5, failure cases 12 and 19
		Rule:   "The context of Lock bounds only the wait: the lease outlives it, and Release works after it has ended.",
		timely: true, run: releaseNeedsNoContext},
	{Name: "ClientCloseLeavesNothing", // promise 6, failure case 12
		Rule: "Close ends waits, releases what is held, and leaves nothing in the store.",
		run:  clientClose},
	{Name: "VanishedHolderDelaysForItsTTL", // failure case 14
		Rule: "A waiting Lock is granted the key of a holder that vanished right after its grant within little more than the TTL.",
		run:  vanishedHolder},
	{Name: "VanishedWaiterDelaysForItsPatience", // promise 4
		Rule:  "A waiter that vanished delays those behind it for its patience and its claim, and no longer.",
		Needs: queueing, timely: true,
		play: "lock a; join d brief; begin b; unlock a; comes b in=3ttl; unlock b; gone in=ttl"},
	{Name: "LossIsKnownBeforeTheNextGrant", // promises 1 and 2, failure case 1
		Rule:   "A holder that is cut off right after a renewal learns of its loss before a waiter elsewhere has the key.",
		timely: true, run: func(e *env) {
			lossBeforeGrant(e, func(c *hasp.Client) *hasp.Lease { return e.lock(c, e.short()) })
		}},
	{Name: "LockOutlivesAShortOutage", // promise 7, failure case 16
		Rule:   "A store that is unreachable for less than the TTL fails neither a waiting Lock nor a held lease.",
		timely: true,
		play:   "lock a short faulty; begin b short faulty; outage; stands a b; unlock a; comes b in=ttl; unlock b; gone in=ttl"},
	{Name: "OutageAtTheTurn", // promise 7, failure case 16
		Rule:   "A waiter whose turn comes while the store is unreachable for less than the TTL is granted the key afterwards.",
		timely: true,
		play:   "lock a short; begin b short faulty; stands b; outage; unlock a; comes b in=3ttl; unlock b; gone in=ttl"},
	{Name: "LostRepliesDoNoHarm", // failure case 13
		Rule:   "When the reply to an acquire, a renewal or a release is lost, asking again has the outcome of the first.",
		timely: true, run: lostReplies},
	{Name: "DuplicatedRequestsDoNothing", // failure case 13
		Rule: "Requests that reach the store twice have the outcome of one.",
		play: "lock b0 twice; begin b1 twice; unlock b0; comes b1 later=b0;" +
			each([]string{"1", "2", "3", "4"}, "begin b#+1 on=b#-1; unlock b#; comes b#+1 later=b#") + "unlock b5; free"},
	{Name: "BreakEndsExactlyOneOwner",
		Rule:   "Break takes the key from the named owner, whose lease is lost, and from nobody else.",
		timely: true, run: breakOwner},
	{Name: "AdoptedLeaseGoesOn",
		Rule:   "A lease that another client adopts keeps its fence and is renewed there.",
		timely: true,
		play:   "grant a brief; adopt b short from=a; stands b; held a; unlock b; free"},
	{Name: "KeptKeyGoesToWhoWaits",
		Rule:  "A client that keeps a key takes it again with rising fences, and gives it back once its renewal says that somebody waits.",
		Needs: queueing, timely: true, run: keptKey},
	{Name: "NoGoroutineStays", // promise 6, failure case 28
		Rule: "After many locks, waits that were cancelled, lost leases and Close no goroutine is left.",
		run:  noGoroutineStays},
}

// client returns a hasp.Client on a driver of its own, behind faults.
func (e *env) client(s fault.Script) *hasp.Client {
	e.Helper()
	return e.observed(s, func(hasp.Event) {})
}

func (e *env) observed(s fault.Script, observe func(hasp.Event)) *hasp.Client {
	e.Helper()
	d := fault.New(e.store.Open(), s)
	d.Took = e.took
	c, err := hasp.New(d, &hasp.Options{Observe: func(ev hasp.Event) {
		if ev.Kind == hasp.EventWaiting {
			e.mu.Lock()
			e.waiting[ev.Owner] = true
			e.mu.Unlock()
		}
		observe(ev)
	}})
	if err != nil {
		e.Fatalf("hasp.New: %v", err)
	}
	e.Cleanup(func() { _ = c.Close() }) // the case checks what it leaves
	return c
}

// refused returns how many Locks were refused at least once.
func (e *env) refused() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.waiting)
}

// lasting and short are the options of leases that outlast the case, or not.
func (e *env) lasting() *hasp.LockOptions { return &hasp.LockOptions{TTL: e.long} }
func (e *env) short() *hasp.LockOptions   { return &hasp.LockOptions{TTL: e.ttl} }

func (e *env) lock(c *hasp.Client, o *hasp.LockOptions) *hasp.Lease {
	e.Helper()
	lease, err := c.Mutex("k", o).Lock(e.ctx)
	if err != nil {
		e.Fatalf("Lock: %v", err)
	}
	return lease
}

func (e *env) unlock(l *hasp.Lease) {
	e.Helper()
	if err := l.Release(); err != nil {
		e.Fatalf("Release: %v", err)
	}
}

// waiting is a Lock in the background.
type waiting struct {
	*env
	cancel context.CancelCauseFunc
	lease  *hasp.Lease
	err    error
	at     time.Time
	done   chan struct{}
}

// begin starts a Lock, and returns when it waits: in the queue where there is one.
func (e *env) begin(c *hasp.Client, o *hasp.LockOptions) *waiting {
	e.Helper()
	return e.beginLock(c.Mutex("k", o).Lock)
}

// beginLock is begin for any lock of "k".
func (e *env) beginLock(lock func(context.Context) (*hasp.Lease, error)) *waiting {
	e.Helper()
	places, refused := e.inspect("k").Waiters, e.refused()
	w := e.startLock(lock)
	e.eventually(0, "the Lock was refused", func() bool {
		select {
		case <-w.done:
			if e.refused() == refused { // a lease that was to refuse it may have ended meanwhile
				e.Fatalf("the Lock was not refused: granted %v, %v", w.lease != nil, w.err) // not the lease: its renewals go on
			}
		default:
		}
		return e.refused() > refused
	})
	if e.traits.Queue != driver.QueueNone {
		e.eventually(0, "the Lock waits in the queue", func() bool { return e.inspect("k").Waiters > places })
	}
	return w
}

// startLock starts a Lock, which ends with the case.
func (e *env) startLock(lock func(context.Context) (*hasp.Lease, error)) *waiting {
	ctx, cancel := context.WithCancelCause(e.ctx)
	w := &waiting{env: e, cancel: cancel, done: make(chan struct{})}
	e.Cleanup(func() { cancel(nil); <-w.done })
	go func() {
		defer close(w.done)
		w.lease, w.err = lock(ctx)
		w.at = time.Now()
	}()
	return w
}

// granted waits for the lease.
func (w *waiting) granted(limit time.Duration) *hasp.Lease {
	w.Helper()
	w.comes(w.done, limit+w.slack, "Lock has not returned")
	if w.err != nil {
		w.Fatalf("Lock: %v", w.err)
	}
	return w.lease
}

// goneFrom waits until the store knows nothing of "k".
func (e *env) goneFrom(limit time.Duration) {
	e.Helper()
	e.eventually(limit, "the store has nothing of the key", func() bool {
		info := e.inspect("k")
		return !info.Held && info.Waiters == 0
	})
}

// locks is the client with which an owner locks: its own, that of another owner or one of three.
func (p *player) locks(s step, name string) *hasp.Client {
	_, spread := s.says["spread"]
	at := cmp.Or(s.says["on"], name)
	if spread {
		at = strconv.Itoa(p.calls % 3)
		p.calls++
	}
	if p.hasps[at] == nil {
		var faults fault.Script
		if _, twice := s.says["twice"]; twice {
			faults = func(fault.Call) fault.Fault { return fault.Fault{Twice: true} }
		} else if _, faulty := s.says["faulty"]; faulty {
			faults = p.outage.script
		}
		p.hasps[at] = p.env.client(faults)
	}
	p.hasps[name] = p.hasps[at]
	return p.hasps[name]
}

// locker is what an owner locks with, as its name says: w is a writer among readers.
func (p *player) locker(s step, name string) (lock, try func(context.Context) (*hasp.Lease, error)) {
	c, key, o := p.locks(s, name), p.key(name), p.lasting()
	if _, short := s.says["short"]; short {
		o = p.short()
	}
	switch m := ownerName.FindStringSubmatch(name); {
	case m[2] != "":
		l := c.Semaphore(key, number(m[2]), o)
		return l.Lock, l.TryLock
	case m[1] == "r":
		l := c.RWMutex(key, o)
		return l.RLock, l.TryRLock
	case m[1] == "w":
		l := c.RWMutex(key, o)
		return l.Lock, l.TryLock
	}
	l := c.Mutex(key, o)
	return l.Lock, l.TryLock
}

// leased notes a lease that is as the step says.
func (p *player) leased(s step, name string, lease *hasp.Lease, err error) {
	p.Helper()
	if err != nil {
		p.Fatalf("%s: %v", name, err)
	}
	if reads := name[0] == 'r' || name[0] == 's'; reads != (lease.Mode() == hasp.Shared) {
		p.Fatalf("%s has a lease of mode %v", name, lease.Mode())
	}
	p.leases[name] = lease
	p.granted(s, name, driver.Result{Granted: true, Fence: lease.Fence(), Slot: lease.Slot(), Abandoned: lease.Abandoned()})
}

// lockVerbs are done with package hasp by each owner of a step, on a client of its own unless it says on whose.
var lockVerbs = map[string]func(p *player, s step, name string, r contend.Owner){
	"lock": func(p *player, s step, name string, _ contend.Owner) {
		lock, _ := p.locker(s, name)
		lease, err := lock(p.ctx)
		p.leased(s, name, lease, err)
	},
	"trylock": func(p *player, s step, name string, _ contend.Owner) {
		_, try := p.locker(s, name)
		lease, err := try(p.ctx)
		p.leased(s, name, lease, err)
	},
	"busy": func(p *player, s step, name string, _ contend.Owner) {
		_, try := p.locker(s, name)
		if _, err := try(p.ctx); !errors.Is(err, hasp.ErrHeld) {
			p.Fatalf("TryLock of %s: %v, want ErrHeld", name, err)
		}
	},
	"begin": func(p *player, s step, name string, _ contend.Owner) { // a Lock in the background
		lock, _ := p.locker(s, name)
		p.waits[name] = p.beginLock(lock)
	},
	"comes": func(p *player, s step, name string, _ contend.Owner) { // the lease of that Lock; "alone": no other does
		lease := p.waits[name].granted(p.limit(s.says["in"]))
		delete(p.waits, name)
		if _, alone := s.says["alone"]; alone {
			for _, other := range p.waits {
				other.stillWaits("while another holds the key")
			}
		}
		p.leased(s, name, lease, nil)
	},
	"still":  func(p *player, s step, name string, _ contend.Owner) { p.waits[name].stillWaits(s.text) },
	"unlock": func(p *player, _ step, name string, _ contend.Owner) { p.unlock(p.leases[name]) },
	"downgrade": func(p *player, _ step, name string, _ contend.Owner) {
		if err := p.leases[name].Downgrade(p.ctx); err != nil {
			p.Fatalf("Downgrade: %v", err)
		}
	},
	"shares": func(p *player, s step, name string, _ contend.Owner) { // after a Downgrade
		lease := p.leases[name]
		if lease.Mode() != hasp.Shared || lease.Err() != nil {
			p.Fatalf("downgraded: mode %v, %v", lease.Mode(), lease.Err())
		}
		p.is(s, name, driver.Result{Granted: true, Fence: lease.Fence()})
	},
	"adopt": func(p *player, s step, name string, _ contend.Owner) {
		from := s.says["from"]
		lease, err := p.locks(s, name).Adopt(p.ctx, p.key(name), p.owner(from).Owner, p.short())
		if err == nil && p.traits.Fencing && lease.Fence() != p.fences[from] {
			p.Fatalf("the fence is %d, and %d adopted", p.fences[from], lease.Fence())
		}
		p.leased(s, name, lease, err)
	},
}

// stands lets time pass, two TTLs unless it says half of one, after which no lease is lost and no Lock has returned.
func (p *player) stands(s step) {
	p.Helper()
	if s.says["for"] == "half" { // enough for a Lock that does not wait to return
		time.Sleep(p.ttl / 2)
	} else {
		time.Sleep(2 * p.ttl)
	}
	for _, name := range s.owners {
		if w := p.waits[name]; w != nil {
			w.stillWaits("while another holds the key")
		} else if lease := p.leases[name]; lease.Err() != nil {
			p.Fatalf("%s is lost: %v", name, lease.Err())
		}
	}
}

func cancelledLock(e *env) {
	holder := e.lock(e.client(nil), e.lasting())
	c := e.client(nil)
	w := e.begin(c, e.lasting())
	behind := e.begin(c, e.lasting())
	why := errors.New("changed my mind")
	w.cancel(why)
	<-w.done
	var held *hasp.HeldError
	var silent *hasp.Error
	switch {
	case !errors.Is(w.err, context.Canceled) || !errors.Is(w.err, why):
		e.Errorf("the error is %v, want Canceled with its cause", w.err)
	case !errors.As(w.err, &held):
		if e.fake || !errors.As(w.err, &silent) || silent.Class != hasp.ClassUnreachable { // a store that is slow is not waited for
			e.Errorf("the error is %v, want a HeldError", w.err)
		}
	case held.Holder.Owner != holder.Owner():
		e.Errorf("kept waiting by %+v, want %s", held.Holder, holder.Owner())
	}
	if e.traits.Queue != driver.QueueNone {
		e.eventually(0, "the place is gone", func() bool { return e.inspect("k").Waiters == 1 })
	}
	e.unlock(holder)
	e.unlock(behind.granted(0))
	e.free("k")
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

func releaseNeedsNoContext(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	lease, err := e.client(nil).Mutex("k", e.short()).Lock(ctx)
	if err != nil {
		e.Fatalf("Lock: %v", err)
	}
	cancel()
	select {
	case <-lease.Done():
		e.Fatalf("the lease ended with the wait's context: %v", lease.Err())
	case <-time.After(2 * e.ttl): // time must pass
	}
	e.unlock(lease)
	e.free("k")
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

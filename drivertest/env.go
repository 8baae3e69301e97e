// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/stall"
)

// env is the environment of a case: a store of its own, and methods that check what
// should happen there.
type env struct {
	testing.TB
	ctx    context.Context
	store  Store
	d      driver.Driver   // one client of the store
	opened []driver.Driver // all of them
	traits driver.Traits
	made   func(testing.TB) Store // makes another store
	fake   bool
	at     *string // the step of the trace that is played

	ttl   time.Duration        // of leases and places that the case waits to end
	long  time.Duration        // of those that outlast it
	slack time.Duration        // an allowance for the store and this machine
	lost  func() time.Duration // for how long this process has not got to run so far

	anew    bool                      // the case claims, and may begin anew
	freed   atomic.Pointer[time.Time] // when such a case released last, nil: it was claimed since
	hurries bool                      // the case is timely, and may begin anew
	slowest atomic.Int64              // the longest that the store took for a request, in ns
	void    atomic.Bool               // what such a case found does not count
	again   bool                      // the case may begin anew where the store may have forgotten a release
	gone    atomic.Pointer[time.Time] // when the owner that is to be refused was released

	mu      sync.Mutex
	waiting map[string]bool // owners of a Lock that was refused at least once
}

func newEnv(t testing.TB, h Harness) *env {
	e := &env{TB: t, fake: h.Fake, ttl: h.TTL, slack: 5 * time.Second, ctx: context.Background(),
		waiting: make(map[string]bool)}
	if e.ttl == 0 {
		e.ttl = 500 * time.Millisecond
		if h.Fake {
			e.ttl = 30 * time.Second
		}
	}
	if h.Fake {
		e.slack = 100 * time.Millisecond
		e.lost = func() time.Duration { return 0 } // a fake clock does not run while a goroutine works
	} else {
		e.lost = stall.Watch(t)
	}
	e.made = h.New
	e.store = h.New(t)
	e.d = e.open()
	e.traits = e.d.Traits()
	if n := recorded(e.ctx, e.d); n != nil {
		e.admitted(n, e.traits.MaxTTL)
	}
	e.ttl = max(e.ttl, e.traits.MinTTL)
	e.long = max(20*e.ttl, 10*time.Minute) // a busy machine takes more than one for a case of many keys
	return e
}

// open returns another client of the store.
func (e *env) open() driver.Driver {
	e.Helper()
	d := e.store.Open()
	e.opened = append(e.opened, d)
	e.Cleanup(func() {
		if err := d.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
	return d
}

// ask returns the request of a fresh owner that lasts.
func (e *env) ask(key string) contend.Owner {
	return contend.Owner{
		Key:      key,
		Owner:    rand.Text(),
		Label:    driver.Label{Host: "drivertest", PID: 1, Since: time.Now().UTC().Truncate(time.Millisecond)}.Encode(),
		TTL:      e.long,
		Patience: e.long,
	}
}

// brief returns r with a TTL and a patience that the case waits to end.
func (e *env) brief(r contend.Owner) contend.Owner {
	r.TTL, r.Patience = e.ttl, e.ttl
	return r
}

func queued(r contend.Owner) contend.Owner {
	r.Queue = true
	return r
}

func (e *env) try(d driver.Driver, r contend.Owner) driver.Result {
	e.Helper()
	start := time.Now()
	res, err := contend.Try(e.ctx, d, r)
	e.sent(start)
	if err != nil {
		e.failed(d.Classify(err), err, fmt.Sprintf("Try of %q", r.Key))
	}
	return res
}

// grant tries, and must be granted.
func (e *env) grant(d driver.Driver, r contend.Owner) driver.Result {
	e.Helper()
	res := e.try(d, r)
	if !res.Granted {
		e.Fatalf("Try of %q was refused, want a grant: %+v", r.Key, res)
	}
	if res.TTL <= 0 {
		e.TB.Fatalf("Try of %q was granted for %v, want a TTL that is positive", r.Key, res.TTL)
	}
	if freed := e.freed.Load(); freed != nil && time.Since(*freed) <= claimed {
		e.freed.Store(nil) // claimed in time
	}
	return res
}

// refuse tries, and must be refused.
func (e *env) refuse(d driver.Driver, r contend.Owner) driver.Result {
	e.Helper()
	res := e.try(d, r)
	if res.Granted {
		e.Fatalf("Try of %q was granted, want a refusal: %+v", r.Key, res)
	}
	return res
}

// join puts r in the queue, and must be refused with so many places before it.
func (e *env) join(d driver.Driver, r contend.Owner, ahead int) driver.Result {
	e.Helper()
	res := e.refuse(d, queued(r))
	if res.Ahead != ahead {
		e.Fatalf("Ahead is %d, want %d: %+v", res.Ahead, ahead, res)
	}
	return res
}

// claimed is less than an engine keeps a key for the first in the queue.
const claimed = 300 * time.Millisecond

var errAnew = errors.New("the machine was too busy for the times of this case")

// sent notes how long the store took for a request that was sent at start.
func (e *env) sent(start time.Time) { e.took(time.Since(start)) }

// stalled is for how long the machine did not run this process so far, and the store, unless its clock is fake, let one request wait.
func (e *env) stalled() time.Duration {
	if e.fake {
		return e.lost()
	}
	return e.lost() + time.Duration(e.slowest.Load())
}

func (e *env) took(d time.Duration) {
	for was := e.slowest.Load(); int64(d) > was && !e.slowest.CompareAndSwap(was, int64(d)); was = e.slowest.Load() {
	}
}

// late says that nothing can be concluded: the case must do things within the TTL, and
// a request, or what this process lost, took a good part of that; or the store may have forgotten the release that it
// is asked about.
func (e *env) late() bool {
	gone := e.gone.Load()
	return e.hurries && max(time.Duration(e.slowest.Load()), e.lost()) > e.ttl/4 ||
		e.again && gone != nil && time.Since(*gone) > driver.MaxTransit
}

// Fatalf ends the case; or, on a machine so busy that what was released may have been
// handed off, and on, before the case looked, or that leases may have ended before they were renewed, has it begin
// anew. An error is no such failure (see failed), nor is what eventually waits for in vain, or what comes after the claim.
func (e *env) Fatalf(format string, args ...any) {
	e.Helper()
	freed := e.freed.Load()
	if e.anew && freed != nil && time.Since(*freed) > claimed || e.late() {
		e.Logf(format, args...)
		panic(errAnew)
	}
	e.TB.Fatalf(format, args...)
}

// Errorf fails the case, unless it is to begin anew, as with Fatalf, when it ends.
func (e *env) Errorf(format string, args ...any) {
	e.Helper()
	if e.late() {
		e.Logf(format, args...)
		e.void.Store(true)
		return
	}
	e.TB.Errorf(format, args...)
}

// failed ends the case for an error, or has it begin anew (see proves).
func (e *env) failed(class driver.Class, err error, what string) {
	e.Helper()
	if !e.proves(class, err, what) {
		panic(errAnew)
	}
	e.TB.Fatalf("%s: %v", what, err)
}

// proves is false where an error proves nothing: on a machine so busy that the store took a second to answer before, it gave no
// answer at all. The case begins anew when it ends.
func (e *env) proves(class driver.Class, err error, what string) bool {
	if !e.again || class != driver.ClassUnreachable || max(time.Duration(e.slowest.Load()), e.lost()) <= time.Second {
		return true
	}
	e.Logf("%s: %v", what, err)
	e.void.Store(true)
	return false
}

func (e *env) release(d driver.Driver, r contend.Owner) {
	e.Helper()
	start := time.Now()
	e.freed.Store(&start)
	err := contend.Release(e.ctx, d, r)
	e.sent(start)
	if err != nil {
		e.failed(d.Classify(err), err, fmt.Sprintf("Release of %q", r.Key))
	}
}

// releaseNothing releases, and must get ErrNotHeld.
func (e *env) releaseNothing(d driver.Driver, r contend.Owner) {
	e.Helper()
	var err error
	e.eventually(0, "a Release with an answer", func() bool {
		err = contend.Release(e.ctx, d, r)
		// Nodes of a quorum that have yet to answer a Try of this owner know nothing. One store has no such excuse.
		return e.store.Ended == nil || err == nil || errors.Is(err, driver.ErrNotHeld) || d.Classify(err) != driver.ClassUnreachable
	})
	if !errors.Is(err, driver.ErrNotHeld) {
		e.Fatalf("Release of %q: %v, want ErrNotHeld", r.Key, err)
	}
}

// renew sends one Renew, and must get an answer to each.
func (e *env) renew(d driver.Driver, rs ...contend.Owner) []driver.Renewal {
	e.Helper()
	var mu sync.Mutex
	over := false
	answers := make([]driver.Renewal, len(rs))
	count := make([]int, len(rs))
	start := time.Now()
	contend.Renew(e.ctx, d, rs, func(i int, r driver.Renewal) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			e.Errorf("Renew reported index %d after it returned", i)
		}
		if i < 0 || i >= len(rs) {
			e.Errorf("Renew of %d requests reported index %d", len(rs), i)
			return
		}
		answers[i] = r
		count[i]++
	})
	e.sent(start)
	mu.Lock()
	defer mu.Unlock()
	over = true
	for i, n := range count {
		if n != 1 {
			e.Fatalf("Renew of %d requests reported index %d %d times, want once", len(rs), i, n)
		}
	}
	return answers
}

// renewed sends one request, and it must stand.
func (e *env) renewed(d driver.Driver, r contend.Owner) driver.Renewal {
	e.Helper()
	a := e.renew(d, r)[0]
	if a.Err != nil {
		e.Fatalf("Renew of %q: %v", r.Key, a.Err)
	}
	return a
}

// renewNothing renews, and must get ErrNotHeld.
func (e *env) renewNothing(d driver.Driver, r contend.Owner) {
	e.Helper()
	if a := e.renew(d, r)[0]; !errors.Is(a.Err, driver.ErrNotHeld) {
		e.Fatalf("Renew of %q: %v, want ErrNotHeld", r.Key, a.Err)
	}
}

func (e *env) inspect(key string) driver.Info {
	e.Helper()
	start := time.Now()
	info, err := e.d.Inspect(e.ctx, key)
	e.sent(start)
	if err != nil {
		e.TB.Fatalf("Inspect of %q: %v", key, err)
	}
	return info
}

// heldBy fails unless the store says that r's owner holds the key.
func (e *env) heldBy(r contend.Owner) driver.Info {
	e.Helper()
	info := e.inspect(r.Key)
	if !info.Held || info.Holder.Owner != r.Owner || info.Holder.Label != r.Label {
		e.Fatalf("%q is held by %+v, want the owner %s", r.Key, info.Holder, r.Owner)
	}
	return info
}

// plausible reports whether a lease that has more than least left may have what an engine
// says: an engine that does not know says 0.
func plausible(left, least time.Duration) bool { return left == 0 || left > least }

// outlasts fails unless r's lease lasts for longer than the brief TTL.
func (e *env) outlasts(r contend.Owner, what string) {
	e.Helper()
	left := e.left(r)
	if left == 0 { // not known
		time.Sleep(e.ttl + e.ttl/10)
		e.left(r)
	} else if left <= e.ttl {
		e.Errorf("%s: %v left, want more than %v", what, left, e.ttl)
	}
}

// free fails unless the store has nothing of the key.
func (e *env) free(key string) {
	e.Helper()
	if info := e.inspect(key); info.Held || info.Waiters != 0 {
		e.Fatalf("%q is not free: %+v", key, info)
	}
}

// eventually calls ok until it is true, and fails after limit, the slack, and what the machine and the store stalled.
func (e *env) eventually(limit time.Duration, what string, ok func() bool) {
	e.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit+e.slack+e.stalled() {
			e.TB.Fatalf("after %v: not yet: %s", time.Since(start).Round(time.Millisecond), what)
		}
		e.pause()
	}
}

// comes waits for an event, for limit at most and what the machine and the store stalled.
func comes[T any](e *env, event <-chan T, limit time.Duration, not string) (what T) {
	e.Helper()
	for start := time.Now(); ; {
		most := limit + e.stalled()
		select {
		case what = <-event:
			return what
		case <-time.After(most - time.Since(start)):
		}
		select {
		case what = <-event: // both happened while this goroutine did not run
			return what
		default:
		}
		if e.probe(); most >= limit+e.stalled() {
			e.Fatalf("%s within %v", not, most)
		}
	}
}

// probe notes how long the store takes for a key that no other client uses: it may stand still.
func (e *env) probe() {
	asked := time.Now()
	_, _ = e.d.Inspect(e.ctx, "drivertest")
	e.sent(asked)
}

// pause is the time between two looks at a store.
func (e *env) pause() {
	time.Sleep(e.ttl / 100)
}

// sure is how long a lease of a TTL may be relied on: a store may end it earlier by the
// drift that package hasp allows for.
func sure(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// turn asks with the queue until r is granted, as hasp does, for limit at most.
func (e *env) turn(d driver.Driver, r contend.Owner, limit time.Duration) driver.Result {
	e.Helper()
	var res driver.Result
	e.eventually(limit, "the key is granted to the one whose turn it is", func() bool {
		res = e.try(d, queued(r))
		return res.Granted
	})
	e.freed.Store(nil)
	return res
}

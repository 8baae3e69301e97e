// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/people"
)

const (
	// trialTTL is the TTL of the doctor's own lock.
	trialTTL = 10 * time.Second
	// shortTTL is that of the lease that is left to expire, where the engine has none that is longer at least.
	shortTTL = time.Second
	// trialLimit bounds each step of the trial, beyond the TTL of what it waits for.
	trialLimit = 10 * time.Second
	// lateExpiry is how long after its TTL a lease is free on every engine, and more than most need: etcd takes two seconds.
	lateExpiry = 4 * time.Second
	// slowHandoff is how long a waiter that is told may take, and hardly ever does.
	slowHandoff = 2 * time.Second
)

// trialLock is what the doctor does with a key that no other process uses.
type trialLock struct {
	x      *examination
	key    string
	fences []uint64 // of all grants, in their order

	other   *base.Locks   // a second client, with connections of its own
	refused chan struct{} // it was refused the key, and is in the queue
	hints   *hinted
}

// hinted is a driver that counts its hints.
type hinted struct {
	driver.Driver

	count atomic.Int64
	first sync.Once
	asked chan struct{} // closed when the first Watch has answered
}

// Watch implements [driver.Driver].
func (h *hinted) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	from, err := h.Driver.Watch(ctx, c)
	h.first.Do(func() { close(h.asked) })
	if from == nil || err != nil {
		return from, err
	}
	to := make(chan driver.Hint, 1)
	go func() {
		for {
			select {
			case hint := <-from:
				h.count.Add(1)
				hint.Send(to)
			case <-ctx.Done():
				return
			}
		}
	}()
	return to, nil
}

// try tries a lock, a handoff and an expiry, and compares the fences of their grants. It returns nil when none fails.
func (x *examination) try() *base.Exit {
	t := &trialLock{x: x, refused: make(chan struct{}, 1)}
	if end := t.lock(); end != nil {
		return end
	}
	if err := t.open(); err != nil {
		x.say(doctor.Fail, "", "handoff", "a second client could not use the store, so no handoff was tried: %s", doctor.Said(err))
		return x.failed()
	}
	defer t.other.Leave(true)
	t.handoff()
	t.expiry()
	if x.ctx.Err() != nil {
		return nil // which the caller sees, too
	}
	t.fence()
	return x.failed()
}

// ttl is what a TTL becomes on this engine.
func (t *trialLock) ttl(want time.Duration) time.Duration {
	tr := t.x.l.Traits()
	want = max(want, tr.MinTTL)
	if tr.MaxTTL > 0 {
		want = min(want, tr.MaxTTL)
	}
	return want
}

func (t *trialLock) options(ttl time.Duration) *hasp.LockOptions {
	return &hasp.LockOptions{TTL: t.ttl(ttl), Reason: "hasp doctor"}
}

// lock takes and releases a lock.
func (t *trialLock) lock() *base.Exit {
	x := t.x
	ctx, cancel := x.within(base.AskLimit)
	defer cancel()
	begun := time.Now()
	lease, err := t.free(ctx)
	if err == nil {
		err = lease.Release()
	}
	if err == nil {
		took, fence := time.Since(begun), ""
		if x.l.Traits().Fencing {
			fence = fmt.Sprintf(" (fence %d)", lease.Fence())
		}
		t.fences = append(t.fences, lease.Fence())
		x.measured(took, doctor.OK, "lock", "a lock was granted and released, in %v%s", took.Round(10*time.Microsecond), fence)
		return nil
	}
	if x.ctx.Err() != nil {
		return nil
	}
	end := x.trouble(x.store(), "", err)
	if end.Code == base.ExitDenied && strings.Contains(err.Error(), "access") && strings.Contains(err.Error(), "key") {
		end.Message = fmt.Sprintf("%s does not allow this user to lock the trial key, doctor/… (%s). If it may lock some keys only, put "+
			"their beginning into prefix= of the URL for hasp doctor", x.l.URL, doctor.Said(err))
	}
	return x.ends("lock", "no lock was granted: ", end)
}

// free takes a lock that no other process uses now.
func (t *trialLock) free(ctx context.Context) (lease *hasp.Lease, err error) {
	for range 10 {
		t.key = "doctor/" + t.x.l.Store.Name()
		if lease, err = t.x.l.Mutex(t.key, t.options(trialTTL)).TryLock(ctx); !errors.Is(err, hasp.ErrHeld) {
			break
		}
	}
	return lease, err
}

// open opens the second client.
func (t *trialLock) open() error {
	u := t.x.l.URL
	s, err := t.x.second()
	if err != nil {
		return err
	}
	t.hints = &hinted{Driver: s.Driver, asked: make(chan struct{})}
	dir, _ := store.StateDir() // x.state says why not
	c, err := hasp.New(t.hints, &hasp.Options{StateDir: dir, Observe: func(_ context.Context, e *event.Event) {
		if e.Kind == event.Waiting {
			select {
			case t.refused <- struct{}{}:
			default:
			}
		}
	}})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	t.other = &base.Locks{Client: c, URL: u, Store: s}
	return nil
}

// granted is the answer to the second client.
type granted struct {
	lease *hasp.Lease
	err   error
	at    time.Time
}

// wait has the second client wait for the key, until ctx ends. It returns once that is in the queue; waits is false where it has its
// answer already.
func (t *trialLock) wait(ctx context.Context) (answer chan granted, waits bool) {
	select {
	case <-t.refused: // of the step before
	default:
	}
	answer = make(chan granted, 1)
	go func() {
		lease, err := t.other.Mutex(t.key, t.options(trialTTL)).Lock(ctx)
		answer <- granted{lease, err, time.Now()}
	}()
	watches := t.hints.asked
	if !t.x.l.Traits().Tells.Has(driver.TellsFree) {
		watches = nil
	}
	for refused := t.refused; refused != nil || watches != nil; {
		select {
		case <-refused:
			refused = nil
		case <-watches:
			watches = nil
		case a := <-answer:
			answer <- a
			return answer, false
		}
	}
	return answer, true
}

// handoff has the second client wait until the first releases the key.
func (t *trialLock) handoff() {
	x := t.x
	ctx, cancel := x.within(2 * trialLimit)
	defer cancel()
	first, err := x.l.Mutex(t.key, t.options(trialTTL)).Lock(ctx)
	if err != nil {
		t.failed("handoff", "the key was not granted again, so no handoff was tried", err)
		return
	}
	defer func() { _ = first.Release() }() // an error was seen before
	within, cancel := context.WithTimeout(ctx, trialLimit+trialTTL)
	defer cancel()
	answer, waits := t.wait(within)
	both := !waits && first.Err() == nil
	released, hints := time.Now(), t.hints.count.Load()
	if err = first.Release(); err != nil {
		t.failed("handoff", "the key could not be released while another client waited for it", err)
		cancel()
	}
	got := <-answer
	if got.lease != nil {
		defer func() { _ = got.lease.Release() }() // what is left expires
	}
	switch took := got.at.Sub(released); {
	case err != nil || x.ctx.Err() != nil:
	case got.err != nil && within.Err() == nil:
		t.failed("handoff", "the wait of a second client for the key failed, so no handoff was seen", got.err)
	case got.err != nil:
		t.failed("handoff", fmt.Sprintf("a client that waited for the key was not granted it within %s of its release", people.Short(took)), got.err)
	case both:
		x.say(doctor.Fail, "", "handoff", "a second client was granted the key while the first one held it: two held it at once. Do all addresses in "+
			"the store's URL belong to one store?")
	default:
		t.fences = append(t.fences, first.Fence(), got.lease.Fence())
		t.handedOff(took, t.hints.count.Load() > hints)
	}
}

func (t *trialLock) handedOff(took time.Duration, told bool) {
	x, in := t.x, took.Round(10*time.Microsecond)
	switch hints := x.l.Traits().Tells.Has(driver.TellsFree); {
	case told && took > slowHandoff:
		x.measured(took, doctor.Warn, "handoff", "a waiter was told by a message that the key is free, but was granted it only %v after the release: the store, "+
			"the network or this machine is slow", in)
	case told:
		x.measured(took, doctor.OK, "handoff", "a waiter was granted the key %v after its release, told by a message", in)
	case hints:
		x.measured(took, doctor.Warn, "handoff", "a waiter was granted the key %v after its release, but by polling: no message told it. "+
			"Messages of this store do not come through%s", in, t.x.l.Store.NoMessages)
	default:
		x.measured(took, doctor.OK, "handoff", "a waiter was granted the key %v after its release, by polling, as this store sends no messages", in)
	}
}

// expiry has the second client wait for a lease that is not renewed.
func (t *trialLock) expiry() {
	x := t.x
	if x.ctx.Err() != nil {
		return
	}
	o := t.options(shortTTL)
	o.NoRenew = true
	ctx, cancel := x.within(o.TTL + 2*trialLimit)
	defer cancel()
	lease, err := x.l.Mutex(t.key, o).Lock(ctx)
	if err != nil {
		t.failed("expiry", "the key was not granted again, so no expiry was tried", err)
		return
	}
	asked, deadline := time.Now(), lease.Deadline()
	defer func() { _ = lease.Release() }() // where it has not expired
	answer, _ := t.wait(ctx)
	got := <-answer
	if got.lease != nil {
		defer func() { _ = got.lease.Release() }() // what is left expires
	}
	late := max(got.at.Sub(asked)-o.TTL, 0)
	switch early := deadline.Sub(got.at); {
	case x.ctx.Err() != nil:
	case got.err != nil && ctx.Err() == nil:
		t.failed("expiry", "the wait of a second client for the key failed, so no expiry was seen", got.err)
	case got.err != nil:
		t.failed("expiry", fmt.Sprintf("a lease of %v that nobody renewed did not expire within %s: what a crashed process holds stays held",
			o.TTL, people.Short(got.at.Sub(asked))), got.err)
	case early > 0:
		x.measured(o.TTL-early, doctor.Fail, "expiry", "a lease of %v was given to another client %v too early, while its holder may rely on it: does something "+
			"delete keys of locks, or step the store's clock?", o.TTL, early.Round(time.Millisecond))
	case late > lateExpiry:
		t.fences = append(t.fences, lease.Fence(), got.lease.Fence())
		x.measured(o.TTL+late, doctor.Warn, "expiry", "a lease of %v that nobody renewed was free only %v after its TTL: so much longer others wait for what a crashed "+
			"process held. The store or this machine is slow", o.TTL, late.Round(time.Millisecond))
	default:
		t.fences = append(t.fences, lease.Fence(), got.lease.Fence())
		x.measured(o.TTL+late, doctor.OK, "expiry", "a lease of %v that nobody renewed went to a waiter %v after its TTL, and not before", o.TTL,
			late.Round(time.Millisecond))
	}
}

// fence compares the fences of all grants.
func (t *trialLock) fence() {
	x := t.x
	if !x.l.Traits().Fencing {
		x.say(doctor.OK, "", "fence", "these locks have no fences")
		return
	}
	if len(t.fences) < 2 { // what failed above left nothing to compare
		return
	}
	for i, fence := range t.fences[1:] {
		if fence <= t.fences[i] {
			x.say(doctor.Fail, "", "fence", "fences do not rise: a holder had %d, and the next one %d. Does another program write this store's keys? "+
				"Until that is found, use no locks of it", t.fences[i], fence)
			return
		}
	}
	x.say(doctor.OK, "", "fence", "fences rose with each of %d grants, from %d to %d", len(t.fences), t.fences[0], t.fences[len(t.fences)-1])
}

func (t *trialLock) failed(check, what string, err error) {
	if t.x.ctx.Err() != nil { // that is why
		return
	}
	said := doctor.Said(err)
	if !errors.Is(err, context.DeadlineExceeded) {
		said = t.x.trouble(t.x.store(), "", err).Message
	}
	t.x.say(doctor.Fail, "", check, "%s: %s", what, said)
}

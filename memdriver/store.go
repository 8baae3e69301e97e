// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package memdriver keeps locks in memory: the reference engine.
//
// It is the simplest correct implementation of [driver.Driver], and the way to
// test code that uses hasp. A [Store] is the server: any number of hasp.Clients may
// share one, as they would share one Redis. It runs under testing/synctest, where a
// test that waits for a TTL of 30 seconds takes no time, and it does on demand what is
// hard to provoke with a real store: [Store.Hold] makes another owner the holder,
// [Store.Lose] makes a holder lose its lease, [Store.SetUnreachable] cuts the store off.
//
// [NewNode] returns a store for tests of locks over several stores: it notices
// when it may have lost leases, and has a clock of its own. [Store.Restart] and
// [Store.Flush] make it lose data.
package memdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

const (
	minTTL = time.Millisecond
	// claimLimit bounds the claim time. In memory a claim takes microseconds; only
	// the waiter's own process can delay it.
	claimLimit = 500 * time.Millisecond
	// memory is the least time for which a key that was held is remembered: its
	// newest fence, and whether it is abandoned.
	memory = time.Minute
)

// Store is a store of locks in this process, and the driver for it. It has no
// goroutine of its own: what has expired is noticed at the next request for the key,
// or by a timer after a handoff. All its methods are safe for concurrent use.
type Store struct {
	options NodeOptions

	mu sync.Mutex
	data
	run         string // changes with a restart
	watchers    map[driver.ID]map[chan driver.Hint]struct{}
	epoch       time.Time // what Result.At counts from
	alarms      map[string]*alarm
	told        []func() // the holders that hear, after this request, that a waiter joined
	unreachable bool
}

// New returns an empty store without a node record. Its leases expire by the
// monotonic clock.
func New() *Store { return NewNode(NodeOptions{}) }

// Check implements [driver.Driver]: no configuration of it cannot work.
func (s *Store) Check() error { return nil }

// Traits implements [driver.Driver].
func (s *Store) Traits() driver.Traits {
	t := driver.Traits{
		Engine:         "memory",
		Queue:          driver.QueueHandoff,
		Tells:          driver.TellsFree | driver.TellsHandover | driver.TellsWanted,
		Fencing:        true,
		Shared:         true,
		Slots:          true,
		MarksAbandoned: true,
		MinTTL:         minTTL,
		MaxTTL:         s.options.MaxTTL,
	}
	t.Survives = driver.Failover // there is no other
	if s.options.Now == nil {
		t.Survives |= driver.ClockStep // expiry goes by the monotonic clock
	}
	if s.options.MaxTTL > 0 {
		t.Survives |= driver.StoreRestart | driver.StoreLoss
	}
	return t
}

var (
	errUnreachable = errors.New("the store is unreachable (SetUnreachable)")
	errTTL         = errors.New("the TTL is too long for this node")
)

// enter locks the store for one request.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.unreachable {
		s.mu.Unlock()
		return errUnreachable
	}
	return nil
}

// Try implements [driver.Driver].
func (s *Store) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return s.Vote(ctx, voting.VoteRequest{TryRequest: r})
}

// Vote implements [voting.Node].
func (s *Store) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	if err := r.Check(); err != nil {
		return driver.Result{}, err
	}
	if err := s.enter(ctx); err != nil {
		return driver.Result{}, driver.NotSent(err)
	}
	res := s.vote(&r, s.now())
	res.Run = s.run
	told := s.told
	s.told = nil
	s.mu.Unlock()
	for _, wanted := range told {
		wanted()
	}
	return res, nil
}

func (s *Store) vote(r *voting.VoteRequest, now time.Time) driver.Result {
	switch {
	case !s.voting():
		return driver.Result{Why: voting.NotVoting}
	case s.tooLong(r.TTL):
		return driver.Result{Why: voting.TTLTooLong, TTL: s.maxTTL()}
	}
	s.sweep(now)
	r.Enters = r.Enters && r.Proposal == 0 && r.Mode == driver.Exclusive
	if h := s.mayHaveEntered(r.ID()); h != nil {
		h.declined = !r.Convert // which only one does that entered
	}
	e := s.settled(r.Key, now)
	defer s.forget(e, now)
	switch {
	case s.buried(r.ID(), now):
		res := s.refuse(e, r, now)
		res.Why = driver.WhyReleased
		return res
	case e.holding(r.ID()) != nil:
		return s.again(e, e.holding(r.ID()), r, now)
	case r.Convert:
		return s.refuse(e, r, now)
	case len(e.queue) == 0 && admits(e.holders, r.Mode, r.Limit):
		return s.grant(e, r, now)
	}
	if r.Queue {
		s.join(e, &r.TryRequest, now)
	}
	return s.refuse(e, r, now)
}

// again answers a holder: a repeated request, or the claim of a handoff.
func (s *Store) again(e *entry, h *place, r *voting.VoteRequest, now time.Time) driver.Result {
	fences := 1
	switch {
	case r.Convert:
		return s.convert(e, h, r, now)
	case r.Mode != h.mode: // overtaken by the Convert of this owner
		return s.refuse(e, r, now)
	case !h.claimed && r.Proposal != 0:
		if fences = s.propose(e, r, now); fences == 0 {
			return s.tooLow(e, r.Mode)
		}
		h.fence = r.Proposal
	case !h.claimed && h.enters && r.Fences <= 1: // it has one since it was handed the key
	case !h.claimed:
		fences = max(r.Fences, 1)
		h.fence = s.mint(e, r.Mode, now, fences)
	case r.Raise && !r.Restore && r.Proposal != 0:
		switch {
		case r.Proposal < h.fence:
			return driver.Result{Why: voting.FenceTooLow, Fence: h.fence - 1} // the one it has would do
		case s.tooFar(e, r, now):
			return driver.Result{Why: voting.FenceTooLow, Fence: max(s.floor(e, r.Mode), h.fence)}
		}
		s.take(e, r, now)
		h.fence = r.Proposal
	}
	if !h.claimed && h.reads() {
		h.abandoned = e.abandoned // those that came in beside it may have left it so
	}
	var handoff time.Duration
	if !h.claimed {
		handoff = max(now.Sub(h.since), 1)
	}
	h.claimed = true
	h.extend(now.Add(r.TTL))
	res := h.granted(now, fences)
	res.Handoff = handoff
	return res
}

// grant grants r a key that it can have, unless its proposal cannot be granted.
func (s *Store) grant(e *entry, r *voting.VoteRequest, now time.Time) driver.Result {
	h := newPlace(r.Claim, now)
	h.claimed, h.fence = true, r.Proposal
	fences := 1
	switch {
	case r.Proposal == 0:
		fences = max(r.Fences, 1)
		h.fence = s.mint(e, r.Mode, now, fences)
	case r.Restore:
		if r.Proposal < e.above(r.Mode) || s.tooFar(e, r, now) {
			return s.tooLow(e, r.Mode)
		}
		s.take(e, r, now)
	default:
		if fences = s.propose(e, r, now); fences == 0 {
			return s.tooLow(e, r.Mode)
		}
	}
	h.extend(now.Add(r.TTL))
	e.install(h)
	return h.granted(now, fences)
}

func (s *Store) tooLow(e *entry, mode driver.Mode) driver.Result {
	return driver.Result{Why: voting.FenceTooLow, Fence: s.floor(e, mode)}
}

// Renew implements [driver.Driver].
func (s *Store) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	for i, r := range rs {
		if err := s.enter(ctx); err != nil {
			done(i, driver.Renewal{Err: err})
			continue
		}
		answer := s.renew(r, s.now())
		s.mu.Unlock()
		done(i, answer)
	}
}

func (s *Store) renew(r driver.RenewRequest, now time.Time) driver.Renewal {
	switch {
	case !s.voting() && r.Queue:
		return driver.Renewal{Err: driver.ErrNotHeld} // it must Try, which answers NotVoting
	case !s.voting():
		return driver.Renewal{Err: fmt.Errorf("the lease may stand: %w", voting.ErrNotVoting)}
	case !r.Queue && s.tooLong(r.TTL):
		return driver.Renewal{Err: fmt.Errorf("%w: %v, admitted for %v", errTTL, r.TTL, s.maxTTL())}
	}
	e := s.settled(r.Key, now)
	defer s.forget(e, now)
	if r.Queue {
		i := e.index(r.ID())
		if i < 0 {
			return driver.Renewal{Err: driver.ErrNotHeld}
		}
		e.queue[i].extend(now.Add(r.Patience))
		return driver.Renewal{RetryIn: e.retryIn(i, now)}
	}
	h := e.holding(r.ID())
	late := h != nil && r.Entered && !h.claimed && r.Fence != 0 && h.fence != r.Fence // the claim of an earlier handover
	if h == nil || h.fence < r.Fence || late {
		return driver.Renewal{Err: driver.ErrNotHeld}
	}
	h.extend(now.Add(r.TTL))
	h.wanted, h.keeps = r.Wanted, r.Wanted != nil && r.Keeps
	h.claimed = h.claimed || r.Entered && h.enters
	return driver.Renewal{TTL: h.until.Sub(now), Wanted: len(e.queue) > 0}
}

// Release implements [driver.Driver].
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return s.Withdraw(ctx, voting.WithdrawRequest{ReleaseRequest: r})
}

// Withdraw implements [voting.Node].
func (s *Store) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	now := s.now()
	if h := s.mayHaveEntered(r.ID()); h != nil {
		h.declined = r.End == driver.EndUnused
	}
	e := s.settled(r.Key, now)
	defer s.forget(e, now)
	h := e.holding(r.ID())
	if h != nil && r.UpTo != 0 && h.fence > r.UpTo { // a holder that did not claim the key has no fence
		return driver.ErrNotHeld // the owner asked anew
	}
	if !r.Settled {
		s.tombs[r.ID()] = now.Add(driver.MaxTransit)
	}
	if h != nil {
		e.vacate(h, now, r.End)
		s.handOn(e, now)
		if at, waits := e.opensToTheFirst(); waits && at.Before(h.until) {
			s.look(e.key, at, now) // it knew of this lease's end only
		}
		return nil
	}
	i := e.index(r.ID())
	if i < 0 {
		return driver.ErrNotHeld
	}
	p := e.queue[i]
	e.leave(i)
	s.handOn(e, now) // a writer left: those behind it may join the readers
	if i == 0 && len(e.queue) > 0 && s.voting() {
		s.hint(e.queue[0].id, driver.Hint{}) // now first: it must look at the holders' expiry
	}
	if p.late && r.End != driver.EndUnused {
		return driver.ErrNotHeld // it entered, and its lease was over: the place is that from before
	}
	return nil
}

// Classify implements [driver.Driver].
func (s *Store) Classify(err error) driver.Class {
	switch {
	case errors.Is(err, errUnreachable):
		return driver.ClassUnreachable
	case errors.Is(err, driver.ErrUnsupported), errors.Is(err, errTTL):
		return driver.ClassImpossible
	}
	return driver.ClassUnknown
}

// Close does nothing: a Store outlives its clients, as a server would.
func (s *Store) Close() error { return nil }

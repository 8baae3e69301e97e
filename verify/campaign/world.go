// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/verify/broken"
)

// worldTTL is the TTL of every lease in a world, and the longest that its nodes
// grant.
const worldTTL = 10 * time.Second

// world is five nodes in memory, for scenarios that need exact timing. It runs in a
// bubble of testing/synctest.
type world struct {
	stores []*memdriver.Store
	rate   float64 // how fast the clocks of the nodes run
	begun  time.Time
	broken *variant // how every actor is made; the zero value: nothing is
	actors []*actor
	log    history.Log
	found  []string // findings that are not about holds
}

// newWorld makes nodes that vote and have been up for a long time.
func newWorld(ctx context.Context, broken *variant, rate float64) (*world, error) {
	w := &world{rate: rate, begun: time.Now(), broken: broken}
	now := func() time.Time { return w.begun.Add(time.Duration(w.rate * float64(time.Since(w.begun)))) }
	for range nodes {
		s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: worldTTL, Now: now})
		w.stores = append(w.stores, s)
		r, err := s.Record(ctx)
		if err := errors.Join(err, s.Admit(ctx, r, worldTTL)); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Hour)
	// The fake clock does not advance while an actor acts, and a node without earlier
	// requests may require a fence above its clock.
	for _, s := range w.stores {
		r := driver.TryRequest{Claim: driver.Claim{Key: "before", Owner: rand.Text()}, TTL: worldTTL}
		if _, err := s.Vote(ctx, driver.VoteRequest{TryRequest: r, Proposal: uint64(time.Now().UnixMicro())}); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Second)
	return w, nil
}

// actor is a client of a world.
type actor struct {
	w     *world
	id    int
	skew  time.Duration
	reach []int         // the nodes that it reaches
	slow  time.Duration // the delay of answers to it
	locks *hasp.Client
	n     int
}

// actor adds a client that reaches some nodes only.
func (w *world) actor(skew time.Duration, reach ...int) (*actor, error) {
	a := &actor{w: w, id: len(w.actors), skew: skew, reach: reach}
	w.actors = append(w.actors, a)
	var all []member
	for i := range nodes {
		all = append(all, &nodeLink{member: w.stores[i], a: a, i: i})
	}
	d := w.broken.compose(all, skew, &quorum.Options{NodeTimeout: 2 * time.Second}, newWitness())
	var err error
	a.locks, err = hasp.New(d, nil)
	return a, err
}

// close ends every actor.
func (w *world) close() {
	for _, a := range w.actors {
		if a.locks != nil {
			_ = a.locks.Close() // many scenarios leave leases that cannot be released
		}
	}
}

// actorLease is a lease and its entry in the history.
type actorLease struct {
	*hasp.Lease
	a *actor
	h *history.Hold
}

// try tries once to acquire the key, without renewal. It returns nil if it was refused.
func (a *actor) try(ctx context.Context) *actorLease { return a.take(ctx, false) }

// read is try in shared mode.
func (a *actor) read(ctx context.Context) *actorLease { return a.take(ctx, true) }

func (a *actor) take(ctx context.Context, shared bool) *actorLease {
	a.n++
	asked := a.w.log.Tick()
	m := a.locks.RWMutex("k", &hasp.LockOptions{TTL: worldTTL, NoRenew: true})
	acquire := m.TryLock
	if shared {
		acquire = m.TryRLock
	}
	l, err := acquire(ctx)
	if err != nil {
		return nil
	}
	h := a.w.log.Acquired(history.Hold{Key: "k", Owner: fmt.Sprintf("client %d, acquisition %d", a.id, a.n),
		Fence: broken.Shift(l.Fence(), a.skew), Shared: shared, Asked: asked}, l.Deadline())
	a.w.counts(ctx, l.Owner())
	return &actorLease{l, a, h}
}

// until records the deadline.
func (s *actorLease) until() { s.a.w.log.Extended(s.h, s.Deadline()) }

// release records the end of the hold, and releases.
func (s *actorLease) release() {
	s.a.w.log.Released(s.h)
	_ = s.Release() // late, it finds the lease lost
}

// counts is an oracle: a majority of the stores must have granted.
func (w *world) counts(ctx context.Context, owner string) {
	votes := 0
	for _, s := range w.stores {
		info, err := s.Inspect(ctx, "k")
		if err == nil && slices.ContainsFunc(info.Holders, func(l driver.Lease) bool { return l.Holder.Owner == owner }) {
			votes++
		}
	}
	if votes <= nodes/2 {
		w.found = append(w.found, fmt.Sprintf("a grant rests on %d of %d stores", votes, nodes))
	}
}

// findings runs the oracles.
func (w *world) findings() []string {
	holds := w.log.Holds()
	return slices.Concat(w.found, history.Judge(holds))
}

// nodeLink is a node as one client reaches it.
type nodeLink struct {
	member
	a *actor
	i int
}

var errCut = errors.New("the node cannot be reached")

// call carries out a call, with a late answer.
func (v *nodeLink) call(ctx context.Context, call func() error) error {
	if !slices.Contains(v.a.reach, v.i) {
		return errCut
	}
	err := call()
	if v.a.slow > 0 {
		timer := time.NewTimer(v.a.slow)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (v *nodeLink) Vote(ctx context.Context, r driver.VoteRequest) (res driver.Result, err error) {
	err = v.call(ctx, func() (err error) { res, err = v.member.Vote(ctx, r); return err })
	return res, err
}

func (v *nodeLink) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	got := make([]driver.Renewal, len(rs))
	err := v.call(ctx, func() error {
		v.member.Renew(ctx, rs, func(i int, r driver.Renewal) { got[i] = r })
		return nil
	})
	for i := range rs {
		if err != nil {
			got[i] = driver.Renewal{Err: err}
		}
		done(i, got[i])
	}
}

func (v *nodeLink) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	return v.call(ctx, func() error { return v.member.Withdraw(ctx, r) })
}

func (v *nodeLink) Watch(ctx context.Context, c driver.Claim) (hints <-chan struct{}, err error) {
	err = v.call(ctx, func() (err error) { hints, err = v.member.Watch(ctx, c); return err })
	return hints, err
}

func (v *nodeLink) Record(ctx context.Context) (r driver.Record, err error) {
	err = v.call(ctx, func() (err error) { r, err = v.member.Record(ctx); return err })
	return r, err
}

// Classify knows the error of a node that cannot be reached.
func (v *nodeLink) Classify(err error) driver.Class {
	if errors.Is(err, errCut) {
		return driver.ClassUnreachable
	}
	return v.member.Classify(err)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// kind is the kind of a message.
type kind int

const (
	aTry kind = iota
	aRestore
	aRenew
	aRelease
)

// message waits at a gate. Each of its parts happens once: a node carries it out, and
// its sender gets the answer, if it still waits.
type message struct {
	kind  kind
	round int                     // of a Try: 1, 2
	carry func() (leaves string)  // at the node
	reply func()                  // delivers the answer of carry
	fail  func(err error)         // in place of both
	yes   func()                  // in place of both
	put   func(a *message) func() // gives this message's sender the answer to another message
	res   driver.Result
	err   error
}

// gate is the link of one client to one node. Requests for the story's key wait there
// until the story delivers them; all others pass.
type gate struct {
	member
	owner *client
	first bool // the node has the queue of waiters: its name comes first
	limit time.Duration

	mu   sync.Mutex
	wait []*message
	over bool
}

var errOver = errors.New("the story is over")

func (g *gate) add(m *message) {
	g.mu.Lock()
	over := g.over
	if !over {
		g.wait = append(g.wait, m)
	}
	g.mu.Unlock()
	if over {
		m.fail(errOver)
	}
}

// take takes the first message of a kind and round; nil: there is none.
func (g *gate) take(k kind, round int) *message {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.IndexFunc(g.wait, func(m *message) bool { return m.kind == k && (k != aTry || m.round == round) })
	if at < 0 {
		return nil
	}
	m := g.wait[at]
	g.wait = slices.Delete(g.wait, at, at+1)
	return m
}

// end makes all senders return.
func (g *gate) end() {
	g.mu.Lock()
	wait := g.wait
	g.wait, g.over = nil, true
	g.mu.Unlock()
	for _, m := range wait {
		m.fail(errOver)
	}
}

func (g *gate) named(life string) string {
	switch {
	case life == "":
		return ""
	case g.first:
		return "1 " + life
	}
	return "2 " + life
}

// Traits names the longest lease that this client knows of.
func (g *gate) Traits() driver.Traits {
	t := g.member.Traits()
	t.MaxTTL = g.limit
	return t
}

// at returns the request as the node gets it, with the story's fences.
func (g *gate) at(r contend.Owner) contend.Owner {
	if g.owner.w.fences().NoRaise || g.owner.w.rules.noRaise {
		r.Raise = false
	}
	r.Fence, r.UpTo = g.owner.toNode(r.Fence), g.owner.toNode(r.UpTo)
	return r
}

func (g *gate) try(r driver.VoteRequest) (driver.Result, error) {
	res, err := g.member.Vote(context.Background(), g.at(contend.OfVote(r)).Vote())
	g.owner.saw(res.Fences)
	res.Fence, res.Node = g.owner.fromNode(res.Fence), g.named(res.Node)
	res.Abandoned = false // the models have no abandoned keys, whose next holder waits for more nodes than it needs
	return res, err
}

// StartVote begins a Vote.
func (g *gate) StartVote(_ context.Context, r driver.VoteRequest, done func(driver.Result, error)) {
	if r.Key != key {
		res, err := g.member.Vote(context.Background(), r)
		res.Node = g.named(res.Node)
		done(res, err)
		return
	}
	if r.Proposal == 0 {
		g.owner.w.t.Error("a node is asked to choose the fence")
	}
	g.owner.asks(contend.OfVote(r))
	m := &message{kind: aTry, round: g.owner.round(r.Proposal)}
	m.carry = func() string {
		m.res, m.err = g.try(r)
		return answer(m.res, m.err)
	}
	m.reply = func() { done(m.res, m.err) }
	m.yes = func() { done(driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL}, nil) }
	m.put = func(a *message) func() { return func() { done(a.res, a.err) } }
	m.fail = func(err error) { done(driver.Result{}, err) }
	g.add(m)
}

// Vote is only called with Restore: all others use StartVote.
func (g *gate) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	if r.Key != key {
		return g.member.Vote(ctx, r)
	}
	m := &message{kind: aRestore}
	m.carry = func() string {
		m.res, m.err = g.try(r)
		return answer(m.res, m.err)
	}
	err := g.waits(ctx, m)
	return m.res, err
}

// waits leaves a message at the gate until it is answered, or given up.
func (g *gate) waits(ctx context.Context, m *message) error {
	got := make(chan error, 1)
	m.reply = func() { got <- m.err }
	m.fail = func(err error) { got <- err }
	g.add(m)
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Renew prolongs one lease.
func (g *gate) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	if rs[0].Key != key {
		g.member.Renew(ctx, rs, done)
		return
	}
	m, a := &message{kind: aRenew}, driver.Renewal{}
	m.carry = func() string {
		contend.Renew(context.Background(), g.member, []contend.Owner{g.at(contend.OfRenewal(rs[0]))}, func(_ int, r driver.Renewal) { a = r })
		if a.Err != nil {
			return answer(driver.Result{}, a.Err)
		}
		return ""
	}
	m.yes = func() {
		a.TTL = rs[0].TTL
		m.reply()
	}
	if err := g.waits(ctx, m); err != nil {
		a = driver.Renewal{Err: err}
	}
	done(0, a)
}

// Withdraw withdraws a vote.
func (g *gate) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	if r.Key != key {
		return g.member.Withdraw(ctx, r)
	}
	m := &message{kind: aRelease}
	m.carry = func() string {
		m.err = g.member.Withdraw(context.Background(), g.at(contend.OfWithdrawal(r)).Withdrawal())
		return answer(driver.Result{Granted: true}, m.err)
	}
	return g.waits(ctx, m)
}

// StartWithdraw begins the Release of a lease, which no story has.
func (g *gate) StartWithdraw(ctx context.Context, r driver.WithdrawRequest, done func(error)) {
	go func() { done(g.Withdraw(ctx, r)) }()
}

// Record returns the node's record.
func (g *gate) Record(ctx context.Context) (driver.Record, error) {
	rec, err := g.member.Record(ctx)
	rec.Node = g.named(rec.Node)
	return rec, err
}

// Close does nothing: the node belongs to the world.
func (g *gate) Close() error { return nil }

var (
	_ member       = (*gate)(nil)
	_ driver.Async = (*gate)(nil)
)

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/ballot"
)

// Try asks all nodes at once; see [driver.Driver].
func (d *Driver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	d.converting(r)
	if err := d.check(ctx, r.Claim); err != nil {
		return driver.Result{}, err
	}
	if err := r.Check(); err != nil {
		return driver.Result{}, fmt.Errorf("redlock: %w", err)
	}
	if r.TTL < d.traits.MinTTL || d.traits.MaxTTL > 0 && r.TTL > d.traits.MaxTTL {
		return driver.Result{}, fmt.Errorf("redlock: the TTL is %v: it must be between %v and %v", r.TTL, d.traits.MinTTL, d.traits.MaxTTL)
	}
	o := d.owners.open(d, r.Claim)
	if err := o.enter(ctx); err != nil {
		d.owners.dropIfBlank(o)
		return driver.Result{}, err
	}
	defer o.leave()
	a := &attempt{d: d, o: o, r: r, came: make(chan struct{}, 1)}
	res, err := a.run(ctx)
	if err != nil && o.blank() {
		d.owners.drop(o.id) // the caller need not release it
		err = driver.NotSent(err)
	}
	return res, err
}

// converting notes that a holder converts its lease, before anything can fail.
func (d *Driver) converting(r driver.TryRequest) {
	if !r.Convert {
		return
	}
	if o := d.owners.get(r.Claim); o != nil {
		o.mu.Lock()
		o.Converting()
		o.mu.Unlock()
	}
}

// attempt is a Try under way.
type attempt struct {
	d    *Driver
	o    *owner
	r    driver.TryRequest
	came chan struct{} // something did

	errs [maxNodes]error // why nodes said nothing in this round. o.mu is held
}

// run carries out what the owner's ballot says.
func (a *attempt) run(ctx context.Context) (driver.Result, error) {
	step := a.next(true)
	for {
		switch step.Outcome {
		case ballot.Asking:
			if err := a.round(ctx, step); err != nil {
				return driver.Result{}, err // the caller releases it
			}
		case ballot.Pausing:
			pause := time.NewTimer(step.Pause + rand.N(step.Pause))
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return driver.Result{}, ctx.Err()
			}
		default:
			return a.end(ctx, step)
		}
		step = a.next(false)
	}
}

// next asks the ballot what to do.
func (a *attempt) next(first bool) (step ballot.Step) {
	d := a.d
	var errs [maxNodes]error
	v := d.view(a.r.TTL)
	for _, n := range d.nodes {
		if errs[n.index] = n.trouble(); errs[n.index] == nil {
			errs[n.index] = errSilent // until it answers
			v.Serving.Add(n.index)
		}
	}
	a.o.mu.Lock()
	if first {
		if a.o.Fence() == 0 { // else it asks for that one
			d.clock.saw(a.o.Seen())
			v.Fence = d.clock.next()
		}
		step = a.o.Ask(a.r, v)
	} else {
		step = a.o.Next(v)
	}
	if step.Outcome == ballot.Asking {
		a.errs = errs
	}
	a.o.mu.Unlock()
	d.clock.saw(step.Ask.Proposal)
	return step
}

// view is what the driver knows now.
func (d *Driver) view(ttl time.Duration) ballot.View {
	v := ballot.View{
		Now: d.now(), Queue: d.queueIndex(), Met: d.met.Load(), Limit: d.clock.limit(),
		Timeout: d.timeout(ttl), MaxTTL: d.traits.MaxTTL,
	}
	for _, n := range d.nodes {
		for _, o := range d.nodes {
			if o.lifeName() < n.lifeName() {
				v.Rank[n.index]++
			}
		}
	}
	return v
}

// round asks nodes, and returns when the outcome is known.
func (a *attempt) round(ctx context.Context, step ballot.Step) error {
	d := a.d
	f := d.fanout(d.life, step.Nodes, a.r.TTL, d.most(a.r.TTL), func(n *node) {
		a.o.mu.Lock()
		a.o.Silent(n.index, step.Round)
		decided := a.o.Decided()
		a.o.mu.Unlock()
		if decided {
			a.wake()
		}
	})
	for _, n := range d.nodes {
		if !step.Nodes.Has(n.index) {
			continue
		}
		r := step.Request(n.index)
		n.startVote(f.ctx, r, func(res driver.Result, err error) {
			decided := false
			err = n.voted(a.o, ballot.Reply{Round: step.Round, Asked: r, Answer: ballot.Answer{Result: res}}, err, func(err error) {
				a.errs[n.index], decided = err, a.o.Decided()
			})
			f.ended(n, err)
			if decided {
				a.wake()
			}
		})
	}
	late := time.NewTimer(d.timeout(a.r.TTL))
	defer late.Stop()
	for !a.decided() {
		select {
		case <-a.came:
		case <-late.C:
			f.look() // silent nodes are out of service before any Try goes on
			a.o.mu.Lock()
			a.o.Late(step.Round)
			a.o.mu.Unlock()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	if a.o.Introduces() {
		d.met.Store(true)
	}
	return nil
}

func (a *attempt) wake() {
	select {
	case a.came <- struct{}{}:
	default:
	}
}

func (a *attempt) decided() bool {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	return a.o.Decided()
}

// voted notes an answer to a Vote, whenever it comes. counted is called with the error of
// an answer that counts in the round under way.
func (n *node) voted(o *owner, a ballot.Reply, err error, counted func(error)) error {
	// A node that refuses to write still answers what it can without.
	switch {
	case err == nil && (a.Result.Granted || a.Asked.Queue && a.Result.Why == driver.WhyHeld):
		n.wrote()
	case n.refuses(err):
		n.refusedWrite()
	}
	n.lives(a.Result.Run)
	if err == nil && a.Result.Why == voting.NotVoting {
		err = &admission.HeldBack{Left: a.Result.Left}
		n.leave(err)
	}
	a.Node, a.Kind = n.index, kindOf(err)
	o.mu.Lock()
	back, counts := o.Heard(a)
	if counts {
		counted(err)
	}
	o.mu.Unlock()
	n.d.withdrawAll(o, back)
	n.d.owners.dropIfOver(o)
	return err
}

// kindOf says what an error says of the request.
func kindOf(err error) ballot.Kind {
	switch {
	case err == nil:
		return ballot.Answered
	case driver.IsNotSent(err):
		return ballot.NotSent
	case errors.Is(err, voting.ErrNotVoting):
		return ballot.HeldBack
	case errors.Is(err, driver.ErrNotHeld):
		return ballot.NotHolder
	}
	return ballot.Unknown
}

// refuses says whether an error is about the node: not about a key that holds
// something else, and not that we did not wait for an answer.
func (n *node) refuses(err error) bool {
	return err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, voting.ErrNotVoting) && n.drv.Classify(err) != driver.ClassImpossible
}

// end carries out the last step.
func (a *attempt) end(ctx context.Context, step ballot.Step) (driver.Result, error) {
	d := a.d
	sent := d.withdrawAll(a.o, step.Back)
	if step.Forget {
		d.owners.drop(a.o.id)
	}
	if step.Outcome == ballot.Granted {
		return step.Result, nil
	}
	for i, done := range sent {
		if step.Back[i].Place {
			continue
		}
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	if !step.Stays {
		d.mayVanish(a.o)
	}
	switch step.Outcome {
	case ballot.OneStore:
		return driver.Result{}, &twinError{d.nodes[step.Twins[0]].name, d.nodes[step.Twins[1]].name}
	case ballot.TooFew:
		errs := a.reasons(step)
		d.waitsKnown(ctx, &errs)
		return driver.Result{}, d.tooFew(errs)
	case ballot.InDoubt:
		return driver.Result{}, d.tooFew(a.inDoubt(step))
	}
	if step.Jitter > 0 {
		step.Result.RetryIn += rand.N(step.Jitter)
	}
	return step.Result, nil
}

// reasons are why nodes said nothing about the key.
func (a *attempt) reasons(step ballot.Step) [maxNodes]error {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	errs := a.errs
	for _, n := range a.d.nodes {
		switch res := step.Said[n.index]; {
		case errs[n.index] != nil:
		case res.Why == voting.TTLTooLong:
			errs[n.index] = &tooLong{res.TTL, a.r.TTL}
		case ballot.OutOfStep(&res, step.Fence):
			errs[n.index] = &outOfStep{step.Fence, res.Fence}
		}
	}
	return errs
}

// inDoubt is why it is not known whether a lease stands.
func (a *attempt) inDoubt(step ballot.Step) [maxNodes]error {
	errs := a.reasons(step)
	for _, n := range a.d.nodes {
		if errs[n.index] == nil && !step.Votes.Has(n.index) {
			errs[n.index] = errVoteGone
		}
	}
	return errs
}

// waitsKnown gives the probes of nodes that just said that they are held back a
// moment to find out for how long, which a person wants to know.
func (d *Driver) waitsKnown(ctx context.Context, errs *[maxNodes]error) {
	for range 10 {
		unknown := false
		for _, n := range d.nodes {
			if !waitUnknown(errs[n.index]) {
				continue
			}
			if now := n.trouble(); now != nil {
				errs[n.index] = now
			}
			unknown = unknown || waitUnknown(errs[n.index])
		}
		if !unknown || ctx.Err() != nil || !d.sleep(minTimeout/10) {
			return
		}
	}
}

// waitUnknown says that a node is held back for an unknown time.
func waitUnknown(err error) bool {
	held := (*admission.HeldBack)(nil)
	return errors.As(err, &held) && held.Left == 0
}

// startVote begins a Vote at the node.
func (n *node) startVote(ctx context.Context, r voting.VoteRequest, done func(driver.Result, error)) {
	if n.async != nil {
		n.async.StartVote(ctx, r, done)
	} else if !n.d.spawn(func() { done(n.drv.Vote(ctx, r)) }) {
		done(driver.Result{}, context.Canceled)
	}
}

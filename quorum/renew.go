// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
)

// Renew prolongs leases on all nodes; see [driver.Driver]. A lease counts as
// renewed once a majority of the nodes prolonged what they had, without a gap.
// Those that lost it in a restart are asked for their vote afterwards, which
// counts from the next renewal on: a vote that is given anew says nothing about
// the time before. Once ctx has ended, what was not reported is not known.
func (d *Driver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	var leases, places []int
	for i, r := range rs {
		switch err := d.check(ctx, r.Claim); {
		case err != nil:
			done(i, driver.Renewal{Err: err})
		case r.Queue:
			places = append(places, i)
		default:
			leases = append(leases, i)
		}
	}
	var all sync.WaitGroup
	if len(places) > 0 {
		all.Go(func() { d.keepPlaces(ctx, rs, places, done) })
	}
	if len(leases) > 0 {
		d.renewLeases(ctx, rs, leases, done)
	}
	all.Wait()
}

// renewal is the count for one lease.
type renewal struct {
	bid     *bid // nil: it is not known
	ok, not int
	ttl     time.Duration // the least of those that count
	wanted  bool
	lined   bool // the line node answered: wanted is known
	done    bool
	held    set // prolonged it
	gone    set // said that they don't have it
	errs    [maxNodes]error
}

// tally is the count of one Renew.
type tally struct {
	d    *Driver
	ctx  context.Context // once it has ended nothing is decided
	rs   []driver.RenewRequest
	done func(i int, r driver.Renewal)

	head *node // whose answer is waited for, while it is asked: it knows who waits

	mu   sync.Mutex
	all  map[int]*renewal
	left int
	over chan struct{} // closed when all are decided
	shut bool          // Renew has returned: done is not called any more
}

func (d *Driver) renewLeases(ctx context.Context, rs []driver.RenewRequest, leases []int, done func(i int, r driver.Renewal)) {
	t := &tally{d: d, ctx: ctx, rs: rs, done: done, all: make(map[int]*renewal, len(leases)), left: len(leases), over: make(chan struct{})}
	reqs := make([]driver.RenewRequest, len(leases))
	for k, i := range leases {
		b := d.bids.renewed(d, rs[i])
		t.all[i] = &renewal{bid: b}
		reqs[k] = rs[i]
		if b != nil { // holders that take turns have fences up to the one that was granted
			reqs[k].Fence = max(reqs[k].Fence, b.lease())
		}
	}
	var nodes sync.WaitGroup
	var asked []*node
	for _, n := range d.nodes {
		if err := n.trouble(); err != nil {
			t.fails(n, err)
			continue
		}
		nodes.Add(1)
		if n == d.head.Load() {
			t.head = n
		}
		asked = append(asked, n)
	}
	for _, n := range asked {
		if !d.spawn(func() { defer nodes.Done(); t.ask(ctx, n, reqs, leases) }) {
			nodes.Done()
		}
	}
	// The line node may be slow at this.
	defer time.AfterFunc(d.timeout(rs[leases[0]].TTL), func() { t.ended(nil) }).Stop()
	ended := make(chan struct{})
	go func() {
		nodes.Wait()
		close(ended)
		t.restoreAll(asked)
	}()
	select {
	case <-t.over:
	case <-ended:
	case <-ctx.Done():
	}
	t.ended(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, one := range t.all {
		if !one.done {
			one.done = true
			done(i, driver.Renewal{Err: one.unknown(d, ctx)})
		}
	}
	t.shut = true
}

// unknown is why there is no outcome.
func (one *renewal) unknown(d *Driver, ctx context.Context) error {
	if err := ctx.Err(); err != nil && (one.ok >= d.need || one.not > len(d.nodes)-d.need) {
		return err // and answers enough, which nobody waited for
	}
	return d.tooFew(one.silence(d))
}

// silence is why the nodes that did not answer did not.
func (one *renewal) silence(d *Driver) [maxNodes]error {
	errs := one.errs
	for _, n := range d.nodes {
		switch {
		case errs[n.index] != nil, one.held.has(n):
		case one.gone.has(n):
			errs[n.index] = errVoteGone
		default:
			errs[n.index] = errSilent
		}
	}
	return errs
}

// errVoteGone is not ErrNotHeld: it says nothing of the lease.
var errVoteGone = errors.New("it has the vote no more")

// renewLimit bounds what a node has to prolong leases, when the caller does not.
const renewLimit = 10 * time.Second

// ask renews at one node, for as long as it says anything at all.
func (t *tally) ask(ctx context.Context, n *node, reqs []driver.RenewRequest, leases []int) {
	most := renewLimit
	if end, ok := ctx.Deadline(); ok {
		most = max(time.Until(end), time.Millisecond)
	}
	// Not ctx: the majority's answers end the Renew, and this node's still count
	// for its lease.
	g := n.guard(t.d.life, reqs[0].TTL, most)
	defer g.stop()
	n.drv.Renew(g.ctx, reqs, func(k int, r driver.Renewal) {
		switch {
		case r.Err == nil, errors.Is(r.Err, driver.ErrNotHeld):
			n.heard.Store(mono())
		case errors.Is(r.Err, driver.ErrNotVoting):
			n.leave(&admission.HeldBack{})
		case g.ctx.Err() == nil:
			n.failed(g.begun, r.Err)
		}
		t.counts(n, leases[k], r)
	})
	t.ended(n)
}

// ended notes that a node has no more to say; nil: nobody waits for the line node
// any longer.
func (t *tally) ended(n *node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n != nil && n != t.head {
		return
	}
	t.head = nil
	for i := range t.all {
		t.judge(i)
	}
}

// counts takes one answer.
func (t *tally) counts(n *node, i int, r driver.Renewal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.all[i]
	switch {
	case r.Err == nil:
		if one.ok++; one.ttl == 0 || r.TTL < one.ttl {
			one.ttl = r.TTL
		}
		one.held.add(n)
		one.wanted = one.wanted || r.Wanted
	case errors.Is(r.Err, driver.ErrNotHeld):
		one.not++
		one.gone.add(n)
	default:
		one.errs[n.index] = r.Err
	}
	one.lined = one.lined || n == t.head
	t.judge(i)
}

// judge decides one outcome, once it is known. t.mu is held.
func (t *tally) judge(i int) {
	one := t.all[i]
	switch {
	case one.done || t.shut || t.ctx.Err() != nil:
	case one.ok >= t.d.need && (t.head == nil || one.lined):
		t.decide(i, driver.Renewal{TTL: one.ttl, Wanted: one.wanted})
	case one.not > len(t.d.nodes)-t.d.need:
		t.decide(i, driver.Renewal{Err: driver.ErrNotHeld})
	}
}

// decide reports one outcome. t.mu is held.
func (t *tally) decide(i int, r driver.Renewal) {
	t.all[i].done = true
	t.done(i, r)
	if t.left--; t.left == 0 {
		close(t.over)
	}
}

// fails counts a node that is not asked.
func (t *tally) fails(n *node, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		one.errs[n.index] = err
	}
}

// restoreLanes is how many votes are asked for again at once, at one node.
const restoreLanes = 16

// restoreAll asks the nodes for the votes that they lost, of leases that stand: a
// majority prolonged them in this very renewal. Nodes that missed that a lease is
// Shared now are told: they keep others out, and the line node does not wake those
// who could come in.
func (t *tally) restoreAll(asked []*node) {
	for _, n := range asked {
		var lost []driver.VoteRequest
		t.mu.Lock()
		for i, one := range t.all {
			r := t.rs[i]
			try := driver.TryRequest{Claim: r.Claim, TTL: r.TTL}
			switch {
			case one.bid == nil || one.ok < t.d.need:
			case one.gone.has(n) && r.Fence != 0:
				lost = append(lost, driver.VoteRequest{TryRequest: try, Proposal: r.Fence, Restore: true})
			case one.held.has(n) && one.bid.untold(n, one.held):
				try.Convert, try.Fence = true, r.Fence
				lost = append(lost, driver.VoteRequest{TryRequest: try})
			}
		}
		t.mu.Unlock()
		if len(lost) > 0 && n.serving() {
			t.d.spawn(func() { n.restoreMany(lost) })
		}
	}
}

func (n *node) restoreMany(lost []driver.VoteRequest) {
	work := make(chan driver.VoteRequest, len(lost))
	for _, r := range lost {
		work <- r
	}
	close(work)
	var wg sync.WaitGroup
	for range min(restoreLanes, len(lost)) {
		wg.Go(func() {
			for r := range work {
				n.restore(r)
			}
		})
	}
	wg.Wait()
}

// restore asks for one vote, or tells that it is Shared now. The lease's Release
// goes to this node, too, from now on.
func (n *node) restore(r driver.VoteRequest) {
	b := n.d.bids.get(r.Claim)
	if b == nil {
		return // released meanwhile
	}
	b.mu.Lock()
	stands := b.elected >= fenceOf(r) && !b.over
	switch { // holders that take turns have fences up to the one that was granted
	case stands && r.Convert:
		r.Fence = b.elected
	case stands:
		r.Proposal = b.elected
	}
	if b.shares { // also when the renewal that found the vote gone was of before
		r.Mode = driver.Shared
	}
	b.mu.Unlock()
	if !stands || !b.sends(n) {
		return
	}
	_ = n.call(r.TTL, func(ctx context.Context) error {
		res, err := n.drv.Vote(ctx, r)
		n.tried(b, r, res, err, func(driver.Result, error) {}) // the next renewal counts it
		return err
	})
}

// placeTime stands for the TTL where a place is kept, for how long a node may
// take.
const placeTime = 10 * time.Second

// keepPlaces gives the places in line their sign of life.
func (d *Driver) keepPlaces(ctx context.Context, rs []driver.RenewRequest, places []int, done func(i int, r driver.Renewal)) {
	at := map[*node][]int{}
	for _, i := range places {
		b := d.bids.get(rs[i].Claim)
		if b == nil {
			done(i, driver.Renewal{Err: driver.ErrNotHeld})
			continue
		}
		b.mu.Lock()
		line, gate := b.line, b.gate
		b.mu.Unlock()
		switch {
		case gate: // its own Try prolongs the line node's vote
			done(i, driver.Renewal{})
		case line == nil || line != d.head.Load():
			done(i, driver.Renewal{Err: driver.ErrNotHeld}) // it must ask, and joins the line where that is now
		default:
			at[line] = append(at[line], i)
		}
	}
	for n, is := range at {
		reqs := make([]driver.RenewRequest, len(is))
		for k, i := range is {
			reqs[k] = rs[i]
		}
		g := n.guard(ctx, placeTime, 0)
		answered := make([]bool, len(is))
		var mu sync.Mutex
		n.drv.Renew(g.ctx, reqs, func(k int, r driver.Renewal) {
			if r.Err == nil || errors.Is(r.Err, driver.ErrNotHeld) {
				n.heard.Store(mono())
			} else if g.ctx.Err() == nil {
				n.failed(g.begun, r.Err)
			}
			mu.Lock()
			answered[k] = true
			mu.Unlock()
			done(is[k], r)
		})
		g.stop()
		for k, ok := range answered {
			if !ok {
				done(is[k], driver.Renewal{Err: errSilent})
			}
		}
	}
}

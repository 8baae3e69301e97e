// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/ballot"
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

// renewal is that of one lease.
type renewal struct {
	ballot.Renewal
	i    int    // of its request
	o    *owner // nil: it is not known
	errs [maxNodes]error
}

// renewing is one Renew.
type renewing struct {
	d    *Driver
	ctx  context.Context // once it has ended nothing is decided
	rs   []driver.RenewRequest
	done func(i int, r driver.Renewal)

	mu    sync.Mutex
	queue *node // its answer is waited for, while it is asked: it knows the waiters
	all   []renewal
	left  int
	over  chan struct{} // closed when all are decided
	shut  bool          // Renew has returned: done is not called any more
}

func (d *Driver) renewLeases(ctx context.Context, rs []driver.RenewRequest, leases []int, done func(i int, r driver.Renewal)) {
	w := &renewing{d: d, ctx: ctx, rs: rs, done: done, left: len(leases), over: make(chan struct{})}
	reqs := make([]driver.RenewRequest, len(leases))
	for k, i := range leases {
		o := d.renewedOwner(rs[i])
		w.all = append(w.all, renewal{Renewal: ballot.NewRenewal(len(d.nodes)), i: i, o: o})
		reqs[k] = rs[i]
		if o != nil { // holders that take turns have fences up to the granted one
			reqs[k].Fence = max(reqs[k].Fence, o.fence())
		}
	}
	var asked ballot.Set
	for _, n := range d.nodes {
		err := n.trouble()
		if err == nil {
			asked.Add(n.index)
			if n == d.queue.Load() {
				w.queue = n
			}
			continue
		}
		for k := range w.all {
			w.all[k].errs[n.index] = err
		}
	}
	f := w.send(asked, reqs)
	// The queue node may be slow at this.
	defer time.AfterFunc(d.timeout(rs[leases[0]].TTL), func() { w.ended(nil) }).Stop()
	context.AfterFunc(f.ctx, func() { w.restoreAll(asked) })
	select {
	case <-w.over:
	case <-f.ctx.Done():
	case <-ctx.Done():
	}
	w.end()
}

// renewedOwner is that of a lease that is renewed. One of another process, which was
// adopted, has its ballot from here on; nil when its fence is not known.
func (d *Driver) renewedOwner(r driver.RenewRequest) *owner {
	o := d.owners.get(r.Claim)
	switch {
	case o != nil:
	case r.Fence == 0:
		return nil
	default:
		o = d.owners.open(d, r.Claim)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Renewing(r, d.now())
	return o
}

func (o *owner) fence() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Fence()
}

// renewLimit bounds what a node has to prolong leases, when the caller does not.
const renewLimit = 10 * time.Second

// send renews at each node, for as long as it says anything at all.
func (w *renewing) send(asked ballot.Set, reqs []driver.RenewRequest) *fanout {
	most := renewLimit
	if end, ok := w.ctx.Deadline(); ok {
		most = max(time.Until(end), time.Millisecond)
	}
	// Not ctx: the majority's answers end the Renew, and those of the other nodes still
	// count for their leases.
	f := w.d.fanout(w.d.life, asked, reqs[0].TTL, most, w.ended)
	for _, n := range w.d.nodes {
		if asked.Has(n.index) && !w.d.spawn(func() { w.ask(f, n, reqs) }) {
			f.over(n)
		}
	}
	return f
}

func (w *renewing) ask(f *fanout, n *node, reqs []driver.RenewRequest) {
	n.drv.Renew(f.ctx, reqs, func(k int, r driver.Renewal) {
		f.hears(n, r.Err)
		w.answer(n, k, r)
	})
	f.over(n)
	w.ended(n)
}

// ended notes that a node has no more to say; nil: the Renew no longer waits for the
// queue node.
func (w *renewing) ended(n *node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n != nil && n != w.queue {
		return
	}
	w.queue = nil
	for k := range w.all {
		w.judge(k)
	}
}

// answer counts one answer.
func (w *renewing) answer(n *node, k int, r driver.Renewal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one, kind := &w.all[k], kindOf(r.Err)
	if one.Answer(n.index, kind, r, n == w.queue); kind != ballot.NotHolder {
		one.errs[n.index] = r.Err
	}
	w.judge(k)
}

// judge reports an outcome, once it is known. mu is held.
func (w *renewing) judge(k int) {
	if w.shut || w.ctx.Err() != nil {
		return
	}
	if r, known := w.all[k].Outcome(w.queue != nil); known {
		w.done(w.all[k].i, r)
		if w.left--; w.left == 0 {
			close(w.over)
		}
	}
}

// end reports what is known when nothing more is waited for.
func (w *renewing) end() {
	w.ended(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.all {
		one := &w.all[k]
		switch _, known := one.Outcome(false); {
		case known: // by answers that were not waited for
			w.done(one.i, driver.Renewal{Err: w.ctx.Err()})
		case !one.Known():
			w.done(one.i, driver.Renewal{Err: w.d.tooFew(one.silence(w.d))})
		}
	}
	w.shut = true
}

// silence is why the nodes that did not answer did not.
func (one *renewal) silence(d *Driver) [maxNodes]error {
	errs := one.errs
	for _, n := range d.nodes {
		switch {
		case errs[n.index] != nil, one.Held().Has(n.index):
		case one.Gone().Has(n.index):
			errs[n.index] = errVoteGone
		default:
			errs[n.index] = errSilent
		}
	}
	return errs
}

// errVoteGone is not ErrNotHeld: it says nothing of the lease.
var errVoteGone = errors.New("it has the vote no more")

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// plan is what one pass of a Renew prolongs, and for which owners.
type plan struct {
	now    time.Time
	all    []*renewal
	keep   map[*lease][]*renewal        // to be kept alive, for those that are to be on it
	target map[time.Duration]*lease     // by TTL: the lease that takes all
	move   map[time.Duration][]*renewal // by TTL: those to move
	remark []*renewal                   // those that need another lease for their mark
	ready  []*renewal                   // those to carry out next
}

// plan decides which leases to keep alive, and which owners move to which.
func (d *Driver) plan(now time.Time, all []*renewal) *plan {
	p := &plan{now: now, all: all, keep: make(map[*lease][]*renewal), target: make(map[time.Duration]*lease), move: make(map[time.Duration][]*renewal)}
	d.mu.Lock()
	defer d.mu.Unlock()
	named := make(map[*lease]int) // members that this Renew names
	short := make(map[*lease][]*renewal)
	for _, it := range all {
		it.to, it.move, it.remark, it.counted, it.err = nil, false, nil, false, nil
		rec := d.records[it.key]
		if rec != nil {
			named[rec.on]++
		}
		if !it.known || it.own.held() == it.r.Queue { // only a look: a place is no lease
			continue
		}
		on := d.leases[it.own.lease]
		switch {
		case on == nil || rec == nil || rec.on != on || it.force:
			p.moves(it)
		case on.left(now) >= it.need:
			it.to = on
		default:
			short[on] = append(short[on], it)
		}
		if it.own.held() && leaves(it.own.class, it.own.limit) && (it.mark == nil || it.mark.left(now) < it.need+memory) {
			p.remark = append(p.remark, it)
		}
	}
	for l, items := range short {
		for _, it := range items {
			ttl := seconds(it.need)
			if l.strange || named[l] < l.members || l.asked < ttl || l.asked > ttl+window || l.ttl == 0 {
				p.moves(it)
			} else if t := p.target[ttl]; t == nil || named[l] > named[t] {
				p.target[ttl] = l
			}
		}
	}
	p.gather(short)
	return p
}

// moves notes that a key is to be put on another lease.
func (p *plan) moves(it *renewal) {
	it.move = true
	p.move[seconds(it.need)] = append(p.move[seconds(it.need)], it)
}

// gather has all that need one TTL share the lease with the most members, so that one is kept
// alive and the others are left to expire.
func (p *plan) gather(short map[*lease][]*renewal) {
	for l, items := range short {
		for _, it := range items {
			switch {
			case it.move:
			case p.target[seconds(it.need)] == l:
				it.to = l
				p.keep[l], l.alone = nil, true
			default:
				p.moves(it)
			}
		}
	}
}

// share files each renewal under the lease that is kept alive for it. Those that only look are ready.
func (p *plan) share() {
	for _, it := range p.all {
		to := it.to
		if it.move {
			to = p.target[seconds(it.need)]
		}
		if items, kept := p.keep[to]; kept {
			p.keep[to] = append(items, it)
		} else if !it.move {
			p.ready = append(p.ready, it)
		}
	}
}

// prolong keeps leases alive, and asks for those that some move to. It has the renewals carried out: all together, but
// whenever three quarters of the time that is left are over, those that are ready, so that late ones cost no others.
func (d *Driver) prolong(ctx context.Context, p *plan, carryOut func([]*renewal)) {
	answers, asked := make(chan func()), 0 // what an answer does
	ask := func(f func() func()) {
		asked++
		go func() { answers <- f() }()
	}
	p.share()
	for ttl, items := range p.move {
		if p.target[ttl] == nil {
			ask(func() func() {
				to, err := d.grant(ctx, ttl)
				return func() { d.settle(p, to, items, err) }
			})
		}
	}
	for l, items := range p.keep {
		ask(func() func() {
			err := d.keepAlive(ctx, l)
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				d.expired(l)
				err = nil // the look at its keys says what became of them
			}
			return func() { d.settle(p, l, items, err) }
		})
	}
	if len(p.remark) > 0 {
		longest := time.Duration(0)
		for _, it := range p.remark {
			longest = max(longest, it.need)
		}
		ask(func() func() {
			marks, _ := d.lendMark(ctx, longest) // without: the next renewal tries again
			return func() {
				for _, it := range p.remark {
					it.remark = marks
				}
			}
		})
	}
	for late := lateness(ctx); asked > 0; {
		select {
		case answer := <-answers:
			asked--
			answer()
		case <-late:
			carryOut(p.ready)
			p.ready, p.remark = nil, nil
			late = lateness(ctx)
		}
	}
	carryOut(p.ready)
}

// lateness tells when three quarters of the time that is left are over. It is nil when the rest is of no use for a
// transaction.
func lateness(ctx context.Context) <-chan time.Time {
	end, ok := ctx.Deadline()
	if left := time.Until(end); ok && left > 100*time.Millisecond {
		return time.After(left / 4 * 3)
	}
	return nil
}

// settle notes what was answered about a lease for those that are to be on it.
func (d *Driver) settle(p *plan, to *lease, items []*renewal, err error) {
	p.ready = append(p.ready, items...)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, it := range items {
		if it.err = err; err == nil && it.move {
			to.alone, it.to, it.counted = true, to, true
			to.members++
		}
	}
}

// unanswered notes that a transaction had no answer: the move may still come.
func (d *Driver) unanswered(it *renewal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if it.counted {
		it.to.members--
		it.to.strange = true
		it.counted = false
	}
	if rec := d.records[it.key]; rec != nil && it.writes() {
		rec.unsure = true
	}
}

// anew returns renewals after etcd refused their transaction, since it does not know a lease that a key
// or a mark was to be put on: nothing was written, and another pass takes other leases.
func (d *Driver) anew(some []*renewal) []*renewal {
	for _, it := range some {
		d.expired(it.remark)
		if it.move {
			d.expired(it.to)
		}
		d.mu.Lock()
		it.uncount()
		d.mu.Unlock()
	}
	return some
}

// stands takes what a look says of a key, and reports whether that is an answer: it is on the
// lease that was prolonged, or it is gone. Else another pass knows more.
func (d *Driver) stands(it *renewal, wrote bool) bool {
	own := it.seen.find(it.id)
	d.mu.Lock()
	defer d.mu.Unlock()
	if rec := d.records[it.key]; rec != nil && rec.own.mod > it.seen.rev { // a Try was carried out after this look
		it.uncount()
		later := *rec
		it.own, it.mark, it.known, it.force = &later.own, later.mark, !later.unsure, later.unsure
		return false
	}
	switch {
	case own == nil || own.held() == it.r.Queue:
		if it.uncount(); own == nil {
			d.forget(it.key)
		}
		it.own, it.err = nil, nil // there is nothing to prolong, whatever became of the lease
		return true
	case it.err != nil:
		it.uncount()
		return true
	case it.to == nil || own.lease != it.to.id || it.force && !(wrote && it.move):
		it.uncount()
		it.own, it.known = own, true
		it.mark = d.markOf(it)
		return false
	}
	it.own = own
	rec := &record{own: *own, on: it.to, mark: d.markOf(it)}
	if !it.counted {
		it.to.members++
	}
	it.counted = false
	d.replace(it.key, rec)
	return true
}

func (it *renewal) uncount() {
	if it.counted {
		it.to.members--
		it.counted = false
	}
}

// markOf is the lease of a holder's mark, nil when this driver does not know it, or the mark is gone:
// then the next renewal puts it. d.mu is held.
func (d *Driver) markOf(it *renewal) *lease {
	for _, m := range it.seen.marks {
		if m.id == it.id {
			return d.leases[m.lease]
		}
	}
	return nil
}

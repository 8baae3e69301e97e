// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// overtakes bounds how often a request is decided anew when others changed the key
	// meanwhile. Each time another owner was served.
	overtakes = 64
	// soon is when to look again at a lease that is about to end.
	soon = 250 * time.Millisecond
)

// attempt is one Try.
type attempt struct {
	d *Driver
	names
	r     driver.TryRequest
	start time.Time
	class byte // of the key that it wants
	many  int  // fences

	lease, place, mark *lease // borrowed, for the key of a holder, of a waiter, and for the mark
}

// Try implements [driver.Driver].
func (d *Driver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	if err := d.valid(r.Check()); err != nil {
		return driver.Result{}, err
	}
	if r.Mode == driver.Exclusive {
		r.Limit = 0
	}
	a := &attempt{d: d, names: d.names(r.ID()), r: r, start: time.Now(), class: classOfMode(r.Claim), many: min(max(r.Fences, 1), turns)}
	res, err := a.try(ctx)
	d.giveBack(a.lease, err != nil && !driver.IsNotSent(err))
	d.giveBack(a.place, err != nil && !driver.IsNotSent(err))
	return res, err
}

func classOfMode(c driver.Claim) byte {
	switch {
	case c.Mode == driver.Exclusive:
		return writes
	case c.Limit > 0:
		return slotted
	}
	return reads
}

func (a *attempt) try(ctx context.Context) (driver.Result, error) {
	if res, done, err := a.peek(ctx); done || err != nil {
		return res, err
	}
	for anew := 0; ; anew++ {
		if err := errors.Join(ctx.Err(), a.borrow(ctx)); err != nil {
			if anew > 0 {
				return driver.Result{}, err
			}
			return driver.Result{}, driver.NotSent(err) // at most a lease, which expires
		}
		res, err := a.decide(ctx)
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) || anew == 2 {
			return res, err
		}
		// This process stood still, and nothing was written: with other leases, then.
		a.d.expired(a.lease, a.place, a.mark)
		a.d.giveBack(a.lease, false)
		a.d.giveBack(a.place, false)
		a.lease, a.place, a.mark = nil, nil, nil
	}
}

// borrow makes sure of the leases that the request may need.
func (a *attempt) borrow(ctx context.Context) (err error) {
	if a.lease, err = a.d.lend(ctx, a.r.TTL); err != nil {
		return err
	}
	if leaves(a.class, 0) || a.r.Convert && a.r.Limit > 0 {
		if a.mark, err = a.d.lendMark(ctx, a.r.TTL); err != nil {
			return err
		}
	}
	if _, known := a.d.known(a.r.ID()); a.r.Queue && !a.r.Convert && !known {
		err = a.queues(ctx)
	}
	return err
}

// queues makes sure of a lease for a place in the queue.
func (a *attempt) queues(ctx context.Context) (err error) {
	if a.place == nil {
		a.place, err = a.d.lend(ctx, a.r.Patience)
	}
	return err
}

// decide asks until no other owner changed the key between the look at it and the grant.
func (a *attempt) decide(ctx context.Context) (driver.Result, error) {
	for range overtakes {
		res, done, err := a.open(ctx)
		if done || err != nil {
			return res, err
		}
	}
	return driver.Result{}, errOvertaken
}

// open is the first transaction: it grants a key that can be granted without a closer look,
// else joins the queue and reads what etcd has of the lock. done is false when the request is to
// be decided anew.
func (a *attempt) open(ctx context.Context) (res driver.Result, done bool, err error) {
	rec, known := a.d.known(a.r.ID())
	var cmps []clientv3.Cmp
	switch {
	case a.r.Convert, known && rec.own.held(): // no grant: a look
	case known && rec.own.class == a.class:
		cmps = a.claims(rec)
	case !known:
		cmps = a.free()
	}
	glancing := a.glancing()
	otherwise := a.joins(glancing)
	if len(cmps) > 0 {
		then, look := a.puts(stored{state: holds, limit: a.r.Limit, many: a.many, label: a.r.Label}, false), otherwise
		if a.place == nil { // it mostly succeeds, and what it did not need to ask would be in etcd's log, too
			look = nil
		}
		got, err := a.d.commit(ctx, cmps, then, look)
		switch {
		case err != nil:
			return res, false, err
		case got.Succeeded:
			at := got.Header.Revision
			if known {
				at = rec.own.at
			}
			return a.granted(&entry{stored: stored{state: holds, limit: a.r.Limit, many: a.many}, class: a.class, at: at, mod: got.Header.Revision}), true, nil
		case look != nil:
			return a.looked(ctx, got, glancing)
		}
	}
	got, err := a.d.commit(ctx, nil, otherwise, nil)
	if err != nil {
		return res, false, err
	}
	return a.looked(ctx, got, glancing)
}

// looked goes on with what the first transaction read.
func (a *attempt) looked(ctx context.Context, got *clientv3.TxnResponse, glancing bool) (res driver.Result, done bool, err error) {
	in := got.Responses
	joined := in[0].GetResponseTxn().GetSucceeded()
	if a.place != nil {
		in = in[1:]
	}
	var v *view
	if glancing {
		v, err = a.d.glance(got.Header.Revision, in[1:], joined)
	} else {
		v, err = a.d.look(got.Header.Revision, in[1].GetResponseRange().Kvs)
	}
	if err != nil {
		return res, false, err
	}
	if joined {
		own := &entry{stored: stored{state: waits, limit: a.r.Limit}, class: a.class, id: a.id, at: got.Header.Revision, mod: got.Header.Revision, lease: a.place.id}
		a.d.remember(a.r.ID(), &record{own: *own, on: a.place})
		a.place = nil
	}
	gone := in[0].GetResponseRange().Count > 0
	if v == nil { // a glance is not enough
		full, err := a.d.commit(ctx, nil, []clientv3.Op{a.lists()}, nil)
		if err != nil {
			return res, false, err
		}
		if v, err = a.d.look(full.Header.Revision, full.Responses[0].GetResponseRange().Kvs); err != nil {
			return res, false, err
		}
	}
	if gone {
		res = a.refuse(ctx, v, nil)
		res.Why = driver.WhyReleased
		return res, true, nil
	}
	return a.consider(ctx, v)
}

// free are the conditions under which a newcomer may have the key without a closer look.
func (a *attempt) free() []clientv3.Cmp {
	if a.class != reads {
		return []clientv3.Cmp{none(a.from(converted), a.to(writes)), none(a.name(released), "")}
	}
	return []clientv3.Cmp{
		none(a.from(slotted), a.to(writes)), none(a.name(reads), ""), none(a.name(converted), ""), none(a.name(released), ""),
	}
}

// claims are the conditions under which a waiter may have the key without a closer look. A
// holder that converted is before all others, though its key is a later one.
func (a *attempt) claims(rec record) []clientv3.Cmp {
	own := clientv3.Compare(clientv3.ModRevision(a.name(a.class)), "=", rec.own.mod)
	switch a.class {
	case writes:
		first := clientv3.Compare(clientv3.CreateRevision(a.from(reads)), ">", rec.own.at-1).WithRange(a.to(writes))
		return []clientv3.Cmp{own, first, none(a.from(converted), a.to(converted)), none(a.from(unfinished), a.to(unfinished))}
	case reads:
		return []clientv3.Cmp{own, none(a.from(slotted), a.to(writes))}
	}
	return nil
}

// none says that no key is in a range; of an empty end, that there is no such key.
func none(key, end string) clientv3.Cmp {
	c := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	if end != "" {
		c = c.WithRange(end)
	}
	return c
}

// puts writes the key of a holder, and its mark.
func (a *attempt) puts(s stored, marked bool) []clientv3.Op {
	s.marked = marked
	ops := []clientv3.Op{clientv3.OpPut(a.name(a.class), s.String(), clientv3.WithLease(a.lease.id))}
	if a.mark != nil {
		ops = append(ops, clientv3.OpPut(a.name(unfinished), markOf(marked), clientv3.WithLease(a.mark.id)))
	}
	return ops
}

func markOf(marked bool) string {
	if marked {
		return markTaken
	}
	return markFresh
}

// joins puts a newcomer in the queue, and reads whether it was released, and the lock.
func (a *attempt) joins(glancing bool) (ops []clientv3.Op) {
	if a.place != nil {
		place := stored{state: waits, limit: a.r.Limit, many: 1, label: a.r.Label}
		ops = append(ops, clientv3.OpTxn(
			[]clientv3.Cmp{none(a.name(converted), ""), none(a.name(reads), ""), none(a.name(slotted), ""), none(a.name(writes), ""), none(a.name(released), "")},
			[]clientv3.Op{clientv3.OpPut(a.name(a.class), place.String(), clientv3.WithLease(a.place.id))}, nil))
	}
	ops = append(ops, clientv3.OpGet(a.name(released), clientv3.WithCountOnly()))
	if glancing {
		return append(ops, a.glances(a.place != nil)...)
	}
	return append(ops, a.lists())
}

// lists reads all entries and marks of a lock.
func (n names) lists() clientv3.Op {
	return clientv3.OpGet(n.from(converted), clientv3.WithRange(n.to(writes)))
}

// consider decides by what the lock looks like.
func (a *attempt) consider(ctx context.Context, v *view) (res driver.Result, done bool, err error) {
	i := v.index(a.id)
	if i < 0 {
		switch {
		case admits(v.entries, a.r.Mode, a.r.Limit) && !a.r.Convert:
			return a.grant(ctx, v, nil)
		case a.r.Queue && !a.r.Convert: // it had a place, or comes anew
			return res, false, a.queues(ctx)
		}
		return a.refuse(ctx, v, nil), true, nil
	}
	switch own := v.entries[i]; {
	case own.held() && a.r.Convert && own.fence() >= a.r.Fence:
		return a.convert(ctx, own)
	case own.held() && !a.r.Convert && own.mode() == a.r.Mode:
		return a.standing(ctx, own)
	case own.held(), a.r.Convert:
		return a.refuse(ctx, v, nil), true, nil
	case own.class == a.class && v.admitted(i):
		return a.grant(ctx, v, own)
	case a.r.Queue:
		if done, err = a.keeps(ctx, own); !done || err != nil {
			return res, false, err
		}
		return a.refuse(ctx, v, own), true, nil
	}
	return a.refuse(ctx, v, nil), true, nil
}

// standing answers a holder that asks again.
func (a *attempt) standing(ctx context.Context, own *entry) (res driver.Result, done bool, err error) {
	left, done, err := a.lasts(ctx, own, driver.RenewRequest{Claim: a.r.Claim, TTL: a.r.TTL})
	return driver.Result{Granted: true, Fence: own.fence(), Fences: 1, TTL: left, Slot: own.slot, Abandoned: own.marked}, done, err
}

// keeps makes the place last for its patience.
func (a *attempt) keeps(ctx context.Context, own *entry) (done bool, err error) {
	_, done, err = a.lasts(ctx, own, driver.RenewRequest{Claim: a.r.Claim, Queue: true, Patience: a.r.Patience})
	return done, err
}

// lasts makes an owner's key last for as long as r says. done is false when the key is gone.
func (a *attempt) lasts(ctx context.Context, own *entry, r driver.RenewRequest) (left time.Duration, done bool, err error) {
	rec, known := a.d.known(a.r.ID())
	if !known || !rec.unsure {
		left, err = a.d.remaining(ctx, own.lease, a.start)
		if err != nil || left >= min(span(r), maxTTL) {
			return left, err == nil, err
		}
	}
	answer := driver.Renewal{Err: ctx.Err()}
	a.d.Renew(ctx, []driver.RenewRequest{r}, func(_ int, got driver.Renewal) { answer = got })
	if errors.Is(answer.Err, driver.ErrNotHeld) {
		return 0, false, nil
	}
	return answer.TTL, answer.Err == nil, answer.Err
}

// refuse describes what is in the way. own is its place, nil when it has none.
func (a *attempt) refuse(ctx context.Context, v *view, own *entry) driver.Result {
	a.d.mu.Lock()
	a.d.refused[a.r.Key] = time.Now()
	a.d.mu.Unlock()
	i := len(v.entries)
	if own != nil {
		i = v.index(a.id)
	}
	res := driver.Result{Why: driver.WhyHeld, Ahead: v.ahead(i)}
	if hs := v.holders(); len(hs) > 0 {
		res.Holder = hs[0].holder()
	}
	if own != nil {
		a.d.follow(a.r.ID(), v, own)
		if res.Ahead == 0 {
			res.RetryIn = a.d.opens(ctx, v, own)
			res.Left = res.RetryIn
		}
	}
	return res
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// passes bounds how often a renewal looks anew at keys that were on other leases than
	// it knew: those that another process renews, or a late request moved.
	passes = 4
	// chunk is how many operations a transaction has. etcd takes 128, those of an inner
	// transaction included.
	chunk = 126
	// abreast is how many transactions of one Renew are under way at once.
	abreast = 4
)

// renewal is one request of a Renew.
type renewal struct {
	names
	i    int
	key  driver.ID
	r    driver.RenewRequest
	need time.Duration

	known bool   // what own says
	force bool   // a late request may still move the key, unless it is moved again
	own   *entry // as it was seen last
	mark  *lease // on which its mark is, as far as known
	seen  *view  // the latest look; nil: none yet

	to      *lease // on which its key is to be; nil: only look
	move    bool   // put it there
	remark  *lease // put its mark on this lease; nil: leave it
	counted bool   // it is counted among the members of to, though it is not known to be there
	err     error
}

// span is for how long a request wants a key to last.
func span(r driver.RenewRequest) time.Duration {
	if r.Queue {
		return r.Patience
	}
	return r.TTL
}

// Renew implements [driver.Driver].
//
// Owners that are renewed together share a lease of etcd, which is kept alive in one request, and
// their keys are looked at in one transaction for 126 of them. An owner on a lease with others
// that are not renewed moves to another lease, so that those expire.
//
// One Renew at a time works on an owner: a move to a lease that was the longer one when it was planned may
// come after another Renew has prolonged the old one.
func (d *Driver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	start := time.Now()
	var all []*renewal
	for i, r := range rs {
		if err := errors.Join(d.valid(r.Check()), ctx.Err()); err != nil {
			done(i, driver.Renewal{Err: err})
			continue
		}
		all = append(all, &renewal{names: d.names(r.ID()), i: i, key: r.ID(), r: r, need: min(span(r), maxTTL)})
	}
	for len(all) > 0 {
		mine, busy, ended := d.begin(all)
		if len(mine) > 0 {
			d.renew(ctx, start, mine, done)
		} else {
			select {
			case <-ended:
			case <-ctx.Done():
				for _, it := range busy {
					done(it.i, driver.Renewal{Err: ctx.Err()})
				}
				return
			}
		}
		all = busy
	}
}

// begin makes this the only Renew at work on the owners of mine. Other Renews are at work on those
// of busy, one of them until ended is closed.
func (d *Driver) begin(all []*renewal) (mine, busy []*renewal, ended chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := make(chan struct{})
	for _, it := range all {
		if other := d.renewing[it.key]; other != nil {
			busy, ended = append(busy, it), other
			continue
		}
		d.renewing[it.key] = own
		if rec := d.records[it.key]; rec != nil {
			last := *rec
			it.own, it.mark, it.known, it.force = &last.own, last.mark, !last.unsure, last.unsure
		}
		mine = append(mine, it)
	}
	return mine, busy, ended
}

// finish is the end of what begin began.
func (d *Driver) finish(mine []*renewal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.renewing[mine[0].key])
	for _, it := range mine {
		delete(d.renewing, it.key)
	}
}

// renew renews owners that no other Renew is at work on.
func (d *Driver) renew(ctx context.Context, start time.Time, all []*renewal, done func(int, driver.Renewal)) {
	defer d.finish(all)
	for range passes {
		if len(all) == 0 {
			return
		}
		all = d.pass(ctx, start, all, done)
	}
	for _, it := range all {
		done(it.i, driver.Renewal{Err: errOvertaken})
	}
}

// pass prolongs what is known, looks at the keys of all, and returns those that it learned
// something new of.
func (d *Driver) pass(ctx context.Context, start time.Time, all []*renewal, done func(int, driver.Renewal)) (again []*renewal) {
	all = d.foreign(ctx, start, all, done)
	var mu sync.Mutex
	var running sync.WaitGroup
	room := make(chan struct{}, abreast)
	d.prolong(ctx, d.plan(start, all), func(ready []*renewal) {
		for len(ready) > 0 {
			n := fit(ready)
			some := ready[:n]
			ready = ready[n:]
			room <- struct{}{}
			running.Go(func() {
				left := d.carryOut(ctx, start, some, done)
				mu.Lock()
				again = append(again, left...)
				mu.Unlock()
				<-room
			})
		}
	})
	running.Wait()
	return again
}

// foreign answers for keys that are on a lease of another driver which lasts long enough.
// The others are moved, which shortens nothing.
func (d *Driver) foreign(ctx context.Context, start time.Time, all []*renewal, done func(int, driver.Renewal)) (rest []*renewal) {
	left := make(map[clientv3.LeaseID]time.Duration)
	for _, it := range all {
		if !it.known || d.mine(it.own.lease) != nil {
			rest = append(rest, it)
			continue
		}
		l, ok := left[it.own.lease]
		if !ok {
			var err error
			if l, err = d.remaining(ctx, it.own.lease, start); err != nil {
				done(it.i, driver.Renewal{Err: err})
				continue
			}
			left[it.own.lease] = l
		}
		if it.force || it.seen == nil || l < it.need {
			rest = append(rest, it)
			continue
		}
		done(it.i, d.answer(ctx, it, l))
	}
	return rest
}

// mine returns a lease that this driver was granted, or nil.
func (d *Driver) mine(id clientv3.LeaseID) *lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leases[id]
}

// fit is how many of the renewals go into one transaction.
func fit(all []*renewal) int {
	ops, roots := 0, make(map[string]bool)
	for i, it := range all {
		if it.writes() {
			ops++
		}
		if !roots[it.root] {
			ops++
			roots[it.root] = true
		}
		if ops > chunk {
			return i
		}
	}
	return len(all)
}

func (it *renewal) writes() bool { return it.err == nil && (it.move || it.remark != nil) }

// write puts the key on its new lease, if its revision is still the known one. A request that
// comes late finds another revision: a Renew that had no answer moves the key again.
func (it *renewal) write() clientv3.Op {
	key := it.name(it.own.class)
	var ops []clientv3.Op
	if it.move {
		ops = append(ops, clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(it.to.id)))
	}
	if it.remark != nil {
		ops = append(ops, clientv3.OpPut(it.name(unfinished), markOf(it.own.marked), clientv3.WithLease(it.remark.id)))
	}
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", it.own.mod)}, ops, nil)
}

// carryOut moves keys and looks at all, in one transaction. It returns those that are not
// where they were to be.
func (d *Driver) carryOut(ctx context.Context, start time.Time, some []*renewal, done func(int, driver.Renewal)) (again []*renewal) {
	var ops []clientv3.Op
	wrote, list := make(map[*renewal]int), make(map[string]int)
	for _, it := range some {
		if it.writes() {
			wrote[it] = len(ops)
			ops = append(ops, it.write())
		}
	}
	for _, it := range some {
		if _, ok := list[it.root]; !ok {
			list[it.root] = len(ops)
			ops = append(ops, it.lists())
		}
	}
	got, err := d.commit(ctx, nil, ops, nil)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return d.anew(some)
	case err != nil:
		for _, it := range some {
			d.unanswered(it)
			done(it.i, driver.Renewal{Err: err})
		}
		return nil
	}
	views := make(map[string]*view)
	for _, it := range some {
		v := views[it.root]
		if v == nil {
			if v, err = d.look(got.Header.Revision, got.Responses[list[it.root]].GetResponseRange().Kvs); err != nil && (v == nil || v.find(it.id) == nil) {
				d.unanswered(it)
				done(it.i, driver.Renewal{Err: err})
				continue
			}
			views[it.root] = v
		}
		n, ok := wrote[it]
		if it.seen = v; !d.stands(it, ok && got.Responses[n].GetResponseTxn().GetSucceeded()) {
			again = append(again, it)
			continue
		}
		d.mu.Lock()
		var left time.Duration
		if it.to != nil {
			left = it.to.left(start)
		}
		d.mu.Unlock()
		done(it.i, d.answer(ctx, it, left))
	}
	return again
}

// answer is what a renewal is answered, after a look.
func (d *Driver) answer(ctx context.Context, it *renewal, left time.Duration) driver.Renewal {
	switch {
	case it.err != nil:
		return driver.Renewal{Err: it.err}
	case it.own == nil:
		return driver.Renewal{Err: driver.ErrNotHeld}
	}
	v := it.seen
	d.attend(it.key, v.rev)
	if !it.r.Queue {
		return driver.Renewal{TTL: left, Wanted: len(v.holders()) < len(v.entries)}
	}
	i := v.index(it.id)
	d.follow(it.key, v, it.own)
	switch {
	case v.admitted(i):
		return driver.Renewal{RetryIn: time.Nanosecond} // its turn has come, and the hint was lost
	case v.ahead(i) == 0:
		return driver.Renewal{RetryIn: d.opens(ctx, v, it.own)}
	}
	return driver.Renewal{}
}

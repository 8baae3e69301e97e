// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// gathered is how many marks the transaction of a grant takes over.
const gathered = 32

// grant grants the key to an admitted owner: to a waiter with its key, or to a newcomer if no
// other owner came since.
func (a *attempt) grant(ctx context.Context, v *view, own *entry) (res driver.Result, done bool, err error) {
	orphans := v.orphans()
	if a.mark != nil && len(orphans) > gathered {
		return res, false, a.gather(ctx, orphans[:min(len(orphans), chunk)])
	}
	e := &entry{stored: stored{state: holds, limit: a.r.Limit, many: a.many, label: a.r.Label}, class: a.class}
	e.marked = len(orphans) > 0
	var cmps []clientv3.Cmp
	unchanged := func(end string) clientv3.Cmp {
		return clientv3.Compare(clientv3.ModRevision(a.from(converted)), "<", v.rev+1).WithRange(end)
	}
	if own != nil {
		e.limit, e.at = own.limit, own.at
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(a.name(a.class)), "=", own.mod))
	} else {
		cmps = append(cmps, unchanged(a.to(writes)), none(a.name(released), ""))
	}
	if e.limit > 0 {
		e.slot = v.slot()
		cmps = append(cmps, unchanged(a.to(slotted)))
	}
	ops := a.puts(e.stored, e.marked)
	if a.mark != nil {
		there, gone := a.takeOver(orphans)
		cmps, ops = append(cmps, there...), append(ops, gone...)
	}
	got, err := a.d.commit(ctx, cmps, ops, nil)
	if err != nil || !got.Succeeded {
		return res, false, err
	}
	if e.mod = got.Header.Revision; own == nil {
		e.at = e.mod
	}
	return a.granted(e), true, nil
}

// takeOver is how an owner takes marks over: all have to be there still, and its own one stands
// for them.
func (a *attempt) takeOver(orphans []mark) (there []clientv3.Cmp, gone []clientv3.Op) {
	for _, m := range orphans {
		name := names{a.root, m.id}.name(unfinished)
		there = append(there, clientv3.Compare(clientv3.CreateRevision(name), "=", m.create))
		if m.id != a.id {
			gone = append(gone, clientv3.OpDelete(name))
		}
	}
	return there, gone
}

// gather takes over marks that are too many for the transaction of a grant. The owner's own is that of
// a vanished holder until it has the key, so that the next one sees it if this one gets no further.
func (a *attempt) gather(ctx context.Context, orphans []mark) error {
	there, gone := a.takeOver(orphans)
	own := clientv3.OpPut(a.name(unfinished), markTaken, clientv3.WithLease(a.mark.id))
	_, err := a.d.commit(ctx, there, append(gone, own), nil)
	return err
}

// granted notes a grant on the borrowed leases.
func (a *attempt) granted(e *entry) driver.Result {
	res := driver.Result{Granted: true, Fence: e.fence(), Fences: e.many, TTL: a.left(), Slot: e.slot, Abandoned: e.marked}
	a.d.remember(a.r.ID(), &record{own: *e, on: a.lease, mark: a.mark})
	a.lease = nil
	a.d.unfollow(a.r.ID())
	return res
}

// left is how long the lease for a holder lasts from the start of the call.
func (a *attempt) left() time.Duration {
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	return a.lease.left(a.start)
}

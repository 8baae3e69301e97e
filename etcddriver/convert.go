// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// convert makes a holder share the key. It keeps its position, and so its fence.
func (a *attempt) convert(ctx context.Context, own *entry) (res driver.Result, done bool, err error) {
	if own.class != writes {
		return a.standing(ctx, own)
	}
	left, err := a.d.remaining(ctx, own.lease, a.start)
	if err != nil {
		return res, false, err
	}
	to := own.lease
	if left < min(a.r.TTL, maxTTL) {
		to, left = a.lease.id, a.left()
	}
	a.d.guardless(a.r.ID()) // its key goes, and the lease stays
	s := stored{state: holds, limit: a.r.Limit, many: own.many, rev: own.at, label: a.r.Label}
	ops := []clientv3.Op{clientv3.OpDelete(a.name(writes)), clientv3.OpPut(a.name(converted), s.String(), clientv3.WithLease(to))}
	if a.r.Limit > 0 {
		ops = append(ops, clientv3.OpPut(a.name(unfinished), markFresh, clientv3.WithLease(a.mark.id)))
	} else {
		ops = append(ops, clientv3.OpDelete(a.name(unfinished))) // as a reader, it has finished
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(a.name(writes)), "=", own.mod)
	got, err := a.d.commit(ctx, []clientv3.Cmp{unchanged}, ops, nil)
	if err != nil || !got.Succeeded {
		return res, false, err
	}
	a.turned(&entry{stored: s, class: converted, id: a.id, at: own.at, mod: got.Header.Revision, lease: to})
	a.d.attend(a.r.ID(), got.Header.Revision)
	return driver.Result{Granted: true, Fence: own.fence(), Fences: 1, TTL: left}, true, nil
}

// turned notes a conversion. Of a key on another driver's lease nothing is known: a Renew
// looks.
func (a *attempt) turned(e *entry) {
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	l := a.d.leases[e.lease]
	if l == nil {
		a.d.forget(a.r.ID())
		return
	}
	if l == a.lease {
		a.lease = nil // its membership is the record's
	} else {
		l.members++
	}
	a.d.replace(a.r.ID(), &record{own: *e, on: l, mark: a.mark})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// glances reads of a lock what a newcomer that asks Exclusive has to know while others write: the
// first owner, and the owner before it. The others are only counted: the queue may be long, and each
// newcomer would read all of it.
func (n names) glances(queue bool) []clientv3.Op {
	all := clientv3.WithRange(n.to(writes))
	ops := []clientv3.Op{
		clientv3.OpGet(n.from(converted), clientv3.WithRange(n.to(slotted)), clientv3.WithCountOnly()),
		clientv3.OpGet(n.name(writes)),
		clientv3.OpGet(n.from(writes), append(clientv3.WithFirstCreate(), all)...),
	}
	if queue {
		ops = append(ops, clientv3.OpGet(n.from(writes), all, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(2)))
	}
	return ops
}

// glance is what the answers to glances say; nil when that is not enough: the key is shared, the
// owner is no newcomer, or no owner is before it. joined: it is in the queue since this transaction.
func (d *Driver) glance(rev int64, in []*pb.ResponseOp, joined bool) (*view, error) {
	shared, own, first := in[0].GetResponseRange(), in[1].GetResponseRange(), in[2].GetResponseRange()
	if shared.Count > 0 || own.Count > 0 != joined || first.Count == own.Count {
		return nil, nil
	}
	kvs := []*mvccpb.KeyValue{first.Kvs[0]}
	if len(in) > 3 {
		last := in[3].GetResponseRange().Kvs // the latest first
		for i := len(last) - 1; i >= 0; i-- {
			if last[i].CreateRevision != first.Kvs[0].CreateRevision {
				kvs = append(kvs, last[i])
			}
		}
	}
	v, err := d.look(rev, kvs)
	if err != nil {
		return nil, err
	}
	v.hidden = int(first.Count) - len(kvs)
	return v, nil
}

// crowded is for how long after a refusal a key is taken for one with many waiters.
const crowded = 10 * time.Second

// peek refuses a newcomer that asks Exclusive without the queue when others of this process wait for
// the key, or were refused it of late: a look costs etcd less than an attempt that it has to write
// to its log. done is false when the key may be had.
func (a *attempt) peek(ctx context.Context) (res driver.Result, done bool, err error) {
	a.d.mu.Lock()
	many := a.d.watched[a.r.Key] > 0 || time.Since(a.d.refused[a.r.Key]) < crowded
	a.d.mu.Unlock()
	if !many || a.r.Queue || !a.glancing() {
		return res, false, nil
	}
	got, err := a.d.commit(ctx, nil, append([]clientv3.Op{clientv3.OpGet(a.name(released), clientv3.WithCountOnly())}, a.glances(false)...), nil)
	if err != nil {
		return res, false, driver.NotSent(err) // it was to write nothing
	}
	if got.Responses[0].GetResponseRange().Count > 0 {
		return res, false, nil
	}
	v, err := a.d.glance(got.Header.Revision, got.Responses[1:], false)
	if v == nil || err != nil {
		return res, false, err
	}
	return a.refuse(ctx, v, nil), true, nil
}

// glancing reports whether a glance may be enough.
func (a *attempt) glancing() bool {
	_, known := a.d.known(a.r.ID())
	return !known && a.class == writes && !a.r.Convert
}

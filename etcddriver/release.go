// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if err := d.valid(r.Check()); err != nil {
		return err
	}
	n := d.names(r.ID())
	var tomb []clientv3.Op
	if !r.Settled {
		l, err := d.lendFixed(ctx, tombTTL+window, tombTTL)
		if err != nil {
			return err
		}
		tomb = []clientv3.Op{clientv3.OpPut(n.name(released), "", clientv3.WithLease(l.id))}
	}
	d.guardless(r.ID())
	got, err := d.client.Txn(ctx).Then(append(tomb, d.ends(n, d.order(r.Claim), r.End))...).Commit()
	if err != nil {
		d.doubt(r.ID())
		return err
	}
	d.mu.Lock()
	d.forget(r.ID())
	d.mu.Unlock()
	d.unfollow(r.ID())
	for t := got.Responses[len(tomb)].GetResponseTxn(); t != nil; t = t.Responses[0].GetResponseTxn() {
		if t.Succeeded {
			return nil
		}
		if len(t.Responses) == 0 {
			break
		}
	}
	return driver.ErrNotHeld
}

// order is in which order to look for the key of an owner among the classes.
func (d *Driver) order(c driver.Claim) []byte {
	first := classOfMode(c)
	if rec, known := d.known(c.ID()); known {
		first = rec.own.class
	}
	order := []byte{first}
	for _, class := range []byte{writes, reads, slotted, converted} {
		if class != first {
			order = append(order, class)
		}
	}
	return order
}

// ends deletes what an owner has: the key of a holder, and its mark unless that is to stay;
// or that of a waiter, which leaves the mark of an earlier lease. The first of the
// classes in which it has a key is the only one.
func (d *Driver) ends(n names, order []byte, end driver.End) (op clientv3.Op) {
	for i := len(order) - 1; i >= 0; i-- {
		key := n.name(order[i])
		var otherwise []clientv3.Op
		if i < len(order)-1 {
			otherwise = []clientv3.Op{op}
		}
		waiting := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), ">", 0)}, []clientv3.Op{clientv3.OpDelete(key)}, otherwise)
		gone := append([]clientv3.Op{clientv3.OpDelete(key)}, n.unmark(end)...)
		op = clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), ">", string(holds))}, gone, []clientv3.Op{waiting})
	}
	return op
}

// unmark deletes the mark of a holder unless its end leaves it. One that nobody worked under
// puts back the mark that it took over.
func (n names) unmark(end driver.End) []clientv3.Op {
	mark := n.name(unfinished)
	switch end {
	case driver.Unfinished:
		return nil
	case driver.Unused:
		return []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(mark), "=", markFresh)}, []clientv3.Op{clientv3.OpDelete(mark)}, nil)}
	}
	return []clientv3.Op{clientv3.OpDelete(mark)}
}

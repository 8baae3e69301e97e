// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"slices"

	"github.com/hasplock/hasp/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if err := d.valid(r.Check()); err != nil {
		return err
	}
	n := d.names(r.ID())
	var l *lease
	var tomb []clientv3.Op
	if !r.Settled {
		var err error
		if l, err = d.lendFixed(ctx, tombTTL+window, tombTTL); err != nil {
			return err
		}
		tomb = []clientv3.Op{clientv3.OpPut(n.name(released), "", clientv3.WithLease(l.id))}
	}
	rec, known := d.known(r.ID())
	d.guardless(r.ID())
	found, err := false, error(nil)
	if known {
		found, err = d.release(ctx, n, rec.own.class, rec.own.held(), r.End, tomb)
	}
	if err == nil && !found { // it has something else than is known here
		found, err = d.releaseAny(ctx, n, classOfMode(r.Claim), r.End, tomb)
	}
	switch {
	case l != nil && errors.Is(err, rpctypes.ErrLeaseNotFound): // this process stood still, and nothing was written
		d.expired(l)
		return d.Release(ctx, r)
	case err != nil:
		d.doubt(r.ID())
		return err
	}
	d.mu.Lock()
	d.forget(r.ID())
	d.mu.Unlock()
	d.unfollow(r.ID())
	if !found {
		return driver.ErrNotHeld
	}
	return nil
}

// release ends what an owner has in a class, as a holder or as a waiter. found is false when it
// does not have that; then nothing was changed.
func (d *Driver) release(ctx context.Context, n names, class byte, held bool, end driver.End, tomb []clientv3.Op) (found bool, err error) {
	cmps, ops := n.ending(class, held, end)
	got, err := d.commit(ctx, cmps, append(ops, tomb...), nil)
	if err != nil {
		return false, err
	}
	return got.Succeeded, nil
}

// ending is how an owner ends that has a key in a class: a holder's mark goes unless it is to stay,
// and a waiter leaves that of an earlier lease.
func (n names) ending(class byte, held bool, end driver.End) ([]clientv3.Cmp, []clientv3.Op) {
	key := n.name(class)
	gone := []clientv3.Op{clientv3.OpDelete(key)}
	switch {
	case !held:
		return []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "<", string(holds))}, gone
	case class != reads:
		gone = append(gone, n.unmark(end)...)
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), ">", string(holds)), clientv3.Compare(clientv3.Value(key), "<", string(holds+1))}, gone
}

// unmark deletes the mark of a holder unless its end leaves it. An unused lease
// puts back the mark that it took over.
func (n names) unmark(end driver.End) []clientv3.Op {
	mark := n.name(unfinished)
	switch end {
	case driver.EndUnfinished:
		return nil
	case driver.EndUnused:
		return []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(mark), "=", markFresh)}, []clientv3.Op{clientv3.OpDelete(mark)}, nil)}
	}
	return []clientv3.Op{clientv3.OpDelete(mark)}
}

// releaseAny ends what an owner has in whichever class, in one transaction that tries one
// after another, and remembers the owner as released whatever it had.
func (d *Driver) releaseAny(ctx context.Context, n names, first byte, end driver.End, tomb []clientv3.Op) (found bool, err error) {
	classes := []byte{first}
	for _, class := range []byte{writes, reads, slotted, converted} {
		if class != first {
			classes = append(classes, class)
		}
	}
	var op []clientv3.Op
	for _, class := range classes {
		op = append(op, clientv3.OpGet(n.name(class)))
	}
	for _, class := range slices.Backward(classes) {
		for _, held := range []bool{false, true} {
			cmps, ops := n.ending(class, held, end)
			op = []clientv3.Op{clientv3.OpTxn(cmps, ops, op)}
		}
	}
	got, err := d.commit(ctx, nil, append(op, tomb...), nil)
	if err != nil {
		return false, err
	}
	t := got.Responses[0].GetResponseTxn()
	for ; !t.Succeeded; t = t.Responses[0].GetResponseTxn() {
		if t.Responses[0].GetResponseTxn() == nil { // it has nothing, or what a newer hasp wrote
			for _, res := range t.Responses {
				if _, err := d.look(0, res.GetResponseRange().Kvs); errors.As(err, new(*LayoutError)) {
					return false, err
				}
			}
			return false, nil
		}
	}
	return true, nil
}

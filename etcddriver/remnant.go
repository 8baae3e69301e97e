// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fate is what became of the owner of a key without a lease. The lease that the key was on before says so:
// only renewals keep that alive, and each puts the key on a lease again.
type fate struct {
	is whether
	on clientv3.LeaseID // of an owner that is gone, the lease; 0: not known
}

type whether int

const (
	gone    whether = iota // it is not renewed, or hasp has never written it
	stands                 // its owner may rely on it
	unknown                // etcd was compacted since, and there is no mark
)

// steps bounds how many versions of a key are looked at.
const steps = 16

// fate looks at the versions of a key before the one without a lease.
func (d *Driver) fate(ctx context.Context, kv *mvccpb.KeyValue) (fate, error) {
	ctx = clientv3.WithRequireLeader(ctx)
	name := string(kv.Key)
	for range steps {
		if kv.Version == 1 {
			return fate{is: gone}, nil
		}
		got, err := d.client.Get(ctx, name, clientv3.WithRev(kv.ModRevision-1))
		switch {
		case errors.Is(err, rpctypes.ErrCompacted):
			return d.fateByMark(ctx, kv)
		case err != nil:
			return fate{}, d.needing(err, "read", name)
		case len(got.Kvs) == 0:
			return fate{is: gone}, nil
		}
		if kv = got.Kvs[0]; kv.Lease == 0 {
			continue
		}
		res, err := d.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
		switch {
		case err != nil:
			return fate{}, d.needing(err, "read what is on the lease of", name)
		case res.TTL >= 0:
			return fate{is: stands}, nil
		}
		return fate{gone, clientv3.LeaseID(kv.Lease)}, nil
	}
	return d.fateByMark(ctx, kv)
}

// fateByMark is fate where the versions before are not known: a holder's mark outlives its lease.
func (d *Driver) fateByMark(ctx context.Context, kv *mvccpb.KeyValue) (fate, error) {
	e, ok := d.entryOf(kv)
	if !ok || !e.held() || !leaves(e.class, e.limit) {
		return fate{is: unknown}, nil
	}
	name := d.namesOf(kv).name(unfinished)
	got, err := d.client.Get(ctx, name)
	switch {
	case err != nil:
		return fate{}, d.needing(err, "read", name)
	case len(got.Kvs) == 0:
		return fate{is: gone}, nil
	case got.Kvs[0].Lease == 0:
		return fate{is: unknown}, nil
	}
	return fate{is: stands}, nil
}

// namesOf are the names of the owner of a key.
func (d *Driver) namesOf(kv *mvccpb.KeyValue) names {
	key, _, id, _ := d.split(string(kv.Key))
	return names{d.root(key), id}
}

// What cannot be known to be gone gets a lease instead of being removed. A holder with a TTL of up to three hours
// renews within the first, and a waiter comes back when its place is gone.
const (
	holderKeep = time.Hour
	placeKeep  = time.Minute
)

// RemoveLeftover removes what ListLeftovers found; see [operator.Operations]. A lease that was
// not renewed, by etcd's history, is gone at once, and so is a place; the key is abandoned. Where that history was
// compacted the mark of the holder says so; a reader has none, and its lease expires within an hour, a place within a
// minute. What stood beside a lock expires as it would have.
func (d *Driver) RemoveLeftover(ctx context.Context, l operator.Leftover) (stays time.Duration, err error) {
	if err := d.valid(driver.CheckKey(l.Key)); err != nil {
		return 0, err
	}
	key, _, ok := d.below(l.Name)
	seen, bad := strconv.ParseInt(l.State, 10, 64)
	if !ok || key != l.Key || bad != nil {
		return 0, errNotListed
	}
	got, err := d.client.Get(clientv3.WithRequireLeader(ctx), l.Name)
	if err != nil {
		return 0, d.needing(err, "read", l.Name)
	}
	if l.Live || len(got.Kvs) == 0 || got.Kvs[0].ModRevision != seen || got.Kvs[0].Lease != 0 {
		return 0, driver.ErrNotHeld
	}
	kv := got.Kvs[0]
	if n := later(kv.Value); n > 0 {
		return 0, &LayoutError{l.Name, n}
	}
	if now := d.leftover(l.Key, kv); now.Kind != l.Kind || now.Foreign() != l.Foreign() {
		return 0, errNotListed
	}
	switch d.remnant(kv) {
	case entryRemnant:
		return d.removeEntry(ctx, kv)
	case markRemnant:
		return d.expire(ctx, kv, memory)
	case tombRemnant:
		return d.expire(ctx, kv, tombTTL)
	}
	return 0, d.remove(ctx, kv)
}

var errNotListed = errors.New("etcd: this was not listed by ListLeftovers of a driver with these options")

// removeEntry removes the key of a holder or a waiter, unless its owner may rely on it.
func (d *Driver) removeEntry(ctx context.Context, kv *mvccpb.KeyValue) (stays time.Duration, err error) {
	f, err := d.fate(ctx, kv)
	if err != nil {
		return 0, err
	}
	e, _ := d.entryOf(kv)
	switch {
	case f.is == stands:
		return 0, driver.ErrNotHeld
	case f.is == unknown && e.held():
		return d.expire(ctx, kv, holderKeep)
	case f.is == unknown:
		return d.expire(ctx, kv, placeKeep)
	}
	if f.on != 0 {
		// A member that lags behind answers for a lease which it does not know yet as for an ended one. All members decide a
		// write: to put the key on the lease again fails only if the lease has ended.
		stays, err := d.attach(ctx, kv, f.on)
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return stays, err
		}
	}
	if !e.held() || !leaves(e.class, e.limit) {
		return 0, d.remove(ctx, kv)
	}
	mark, err := d.lendFixed(ctx, memory+window, memory)
	if err != nil {
		return 0, err
	}
	return 0, d.remove(ctx, kv, d.namesOf(kv).marks(e.marked, mark.id))
}

// marks puts the mark of a holder that is gone, where there is none that expires.
func (n names) marks(marked bool, on clientv3.LeaseID) clientv3.Op {
	name := n.name(unfinished)
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(name), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(name, markOf(marked), clientv3.WithLease(on))}, nil)
}

// remove deletes a key that is as it was seen, and does more in the same step.
func (d *Driver) remove(ctx context.Context, kv *mvccpb.KeyValue, more ...clientv3.Op) error {
	return d.replaceLeftover(ctx, kv, append(more, clientv3.OpDelete(string(kv.Key)))...)
}

// expire puts a key that is as it was seen on a lease that lasts for keep, and the mark of a holder on a longer one.
func (d *Driver) expire(ctx context.Context, kv *mvccpb.KeyValue, keep time.Duration) (stays time.Duration, err error) {
	on, err := d.lendFixed(ctx, keep+window, keep)
	if err != nil {
		return 0, err
	}
	ops := []clientv3.Op{putOn(kv, on.id)}
	if e, ok := d.entryOf(kv); ok && e.held() && leaves(e.class, e.limit) {
		mark, err := d.lendMark(ctx, keep)
		if err != nil {
			return 0, err
		}
		ops = append(ops, d.namesOf(kv).marks(e.marked, mark.id))
	}
	if err := d.replaceLeftover(ctx, kv, ops...); err != nil {
		return 0, err
	}
	return keep + window, nil
}

// attach puts a key that is as it was seen on the lease that it was on before.
func (d *Driver) attach(ctx context.Context, kv *mvccpb.KeyValue, on clientv3.LeaseID) (stays time.Duration, err error) {
	if err := d.replaceLeftover(ctx, kv, putOn(kv, on)); err != nil {
		return 0, err
	}
	return d.remaining(ctx, on, time.Now())
}

func putOn(kv *mvccpb.KeyValue, on clientv3.LeaseID) clientv3.Op {
	return clientv3.OpPut(string(kv.Key), "", clientv3.WithIgnoreValue(), clientv3.WithLease(on))
}

// replaceLeftover carries out what is to be done with a key that is as it was seen. ErrNotHeld: it is not.
func (d *Driver) replaceLeftover(ctx context.Context, kv *mvccpb.KeyValue, ops ...clientv3.Op) error {
	same := clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)
	got, err := d.commit(ctx, []clientv3.Cmp{same}, ops, nil)
	switch {
	case err != nil:
		return d.needing(err, "write", string(kv.Key))
	case !got.Succeeded:
		return driver.ErrNotHeld
	}
	return nil
}

// needing adds to a denial which right it takes.
func (d *Driver) needing(err error, right, name string) error {
	if d.Classify(err) != driver.ClassDenied {
		return err
	}
	return fmt.Errorf("%w: it takes the right to %s %s", err, right, quote(name))
}

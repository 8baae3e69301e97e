// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// A name in a semaphore's folders says how its owner holds the key, or wants to.
func TestSemaphoreNames(t *testing.T) {
	t.Parallel()
	m := mark{someOwner, digest("a label")}
	for _, want := range []node{
		{kind: kindSlot, slot: 3, want: want{limit: 5}}, {kind: kindSlot}, {kind: kindFull, want: want{exclusive: true}},
		{kind: kindWait, want: want{exclusive: true}}, {kind: kindWait, want: want{exclusive: true, brief: true}},
		{kind: kindWait, want: want{limit: 7}}, {kind: kindWait, want: want{brief: true}},
	} {
		folder := locks
		if want.kind == kindSlot {
			folder = leases
		}
		name := numbered(nameOf(m, 9, want.marker()), 12)
		n, ok := parseIn(folder, name)
		want.owner, want.label, want.sess, want.seq, want.name = m.owner, m.label, "0000000000000009", 12, folder+"/"+name
		if !ok || n != want || n.sub() != folder+"/" {
			t.Errorf("%s: %+v, want %+v", name, n, want)
		}
	}
	const uuid = "_c_0a1b2c3d-4e5f-4678-9abc-def012345678-"
	for folder, name := range map[string]string{locks: uuid + "lock-0000000003", leases: uuid + "lease-0000000003"} {
		if n, ok := parseIn(folder, name); !ok || !n.foreign() || n.seq != 3 {
			t.Errorf("%s: %+v, %v", name, n, ok)
		}
	}
	for folder, name := range map[string]string{locks: uuid + "lease-0000000003", leases: uuid + "lock-0000000003"} {
		if n, ok := parseIn(folder, name); ok {
			t.Errorf("%s in %s is %+v", name, folder, n)
		}
	}
}

// Who can be granted a key beside whom.
func TestRoom(t *testing.T) {
	t.Parallel()
	slot := func(limit int) node { return node{kind: kindSlot, owner: "o", want: want{limit: limit}} }
	waits := func(w want) node { return node{kind: kindWait, owner: "o", want: w} }
	full, java, javaWaits := node{kind: kindFull, owner: "o"}, node{kind: kindSlot}, node{kind: kindWait}
	writes, shares := want{exclusive: true}, func(limit int) want { return want{limit: limit} }
	for i, c := range []struct {
		before queue
		w      want
		room   bool
	}{
		{nil, writes, true}, {nil, shares(0), true}, {nil, shares(1), true},
		{queue{slot(3)}, writes, false}, {queue{slot(3)}, shares(0), true}, {queue{slot(3)}, shares(1), false},
		{queue{slot(3), slot(2)}, shares(3), false}, {queue{slot(3), slot(0)}, shares(0), true}, {queue{full}, shares(0), false},
		{queue{java, java}, shares(2), false}, {queue{java}, shares(2), true}, {queue{javaWaits}, shares(9), false}, {queue{javaWaits}, writes, false},
		{queue{waits(writes)}, shares(0), false}, {queue{waits(shares(0))}, shares(0), true}, {queue{waits(shares(2))}, shares(0), true},
		{queue{slot(2), waits(shares(2))}, shares(0), false}, {queue{slot(2), waits(want{brief: true, limit: 1})}, shares(0), true},
		{queue{waits(want{brief: true, exclusive: true})}, shares(0), true}, {queue{waits(want{brief: true})}, writes, false},
	} {
		if got := c.before.room(len(c.before), c.w); got != c.room {
			t.Errorf("%d: room is %v: %+v behind %+v", i, got, c.w, c.before)
		}
	}
}

// Java's programs hold a semaphore's mutex while they look at the leases: nothing of ours is granted then, nor beyond a limit with theirs.
func TestSemaphoreBesideJava(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := New(w.connect(w.server.Addr(), time.Hour), &Options{Root: w.root, Layout: Semaphore})
	one := func() contend.Owner {
		r := reader(ask("k"))
		r.Limit = 2
		return r
	}
	first := one()
	w.grant(d, first)
	java := func(folder, name string) string {
		folder = d.dir("k") + "/" + folder
		s, err := w.admin.session(w.ctx)
		must(t, err)
		var path string
		w.eventually("a node in "+folder, func() bool { // as Curator does: the servers may delete an empty folder at any time
			node := zk.Create(folder+"/_c_0a1b2c3d-4e5f-4678-9abc-def012345678-"+name, nil, w.admin.acl, zk.EphemeralSequential)
			must(t, s.Do(w.ctx, zk.Create(folder, nil, w.admin.acl, zk.Container), node))
			path = node.Path
			return node.Err == nil
		})
		return path
	}
	mutex := java(locks, lockMarker)
	r := one()
	if res := w.refuse(d, r); res.Ahead != 1 {
		t.Errorf("refused by %+v", res)
	}
	hints := w.hints(d, r)
	w.refuse(d, queued(r))
	lease := java(leases, leaseMarker)
	w.do(w.admin, zk.Delete(mutex))
	comes(w, hints, "hint that the mutex is free")
	w.refuse(d, queued(r))
	if info, err := d.Inspect(w.ctx, "k"); err != nil || info.Holds != 2 || info.Waiters != 1 {
		t.Errorf("it is %+v, %v", info, err)
	}
	w.do(w.admin, zk.Delete(lease))
	comes(w, hints, "hint that there is a lease")
	if res := w.grant(d, queued(r)); res.Slot != 1 {
		t.Errorf("granted %+v", res)
	}
	w.refuse(d, ask("k"))
	w.release(d, first)
	w.release(d, r)
	w.grant(d, ask("k"))
	if res := w.refuse(d, one()); res.Holder.Mode != driver.Exclusive {
		t.Errorf("refused by %+v", res)
	}
}

// A node in the folder of leases that is no lease is in nobody's way, and does not keep a waiter from waiting.
func TestStrangerAmongLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := New(w.connect(w.server.Addr(), time.Hour), &Options{Root: w.root, Layout: Semaphore})
	first := reader(ask("k"))
	first.Limit = 1
	w.grant(d, first)
	w.do(w.admin, zk.Create(d.dir("k")+"/"+leases+"/stranger", nil, w.admin.acl, zk.Ephemeral))
	next := reader(ask("k"))
	next.Limit = 1
	hints := w.hints(d, next)
	if res := w.refuse(d, queued(next)); res.Holder.Owner != first.Owner {
		t.Errorf("refused by %+v", res)
	}
	w.release(d, first)
	comes(w, hints, "hint")
	w.grant(d, queued(next))
}

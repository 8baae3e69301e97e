// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

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
	mutex := java(recipe.Locks, "lock-")
	r := one()
	if res := w.refuse(d, r); res.Ahead != 1 {
		t.Errorf("refused by %+v", res)
	}
	hints := w.hints(d, r)
	w.refuse(d, queued(r))
	lease := java(recipe.Leases, "lease-")
	w.do(w.admin, zk.Delete(mutex))
	comes(w, hints, "hint that the mutex is free")
	w.refuse(d, queued(r))
	if info, err := d.Inspect(w.ctx, "k"); err != nil || info.Leases != 2 || info.Waiters != 1 {
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

// A node in the folder of leases that is no lease is in no owner's way, and does not keep a waiter from waiting.
func TestStrangerAmongLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := New(w.connect(w.server.Addr(), time.Hour), &Options{Root: w.root, Layout: Semaphore})
	first := reader(ask("k"))
	first.Limit = 1
	w.grant(d, first)
	w.do(w.admin, zk.Create(d.dir("k")+"/"+recipe.Leases+"/stranger", nil, w.admin.acl, zk.Ephemeral))
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

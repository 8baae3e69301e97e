// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// leftovers lists what is left over, by its path.
func (w *world) leftovers(d *Driver, prefix string) map[string]operator.Leftover {
	w.Helper()
	all := map[string]operator.Leftover{}
	w.answered(d, func() error {
		clear(all)
		for l, err := range d.ListLeftovers(w.ctx, prefix, nil) {
			if err != nil {
				return err
			}
			all[l.Name] = l
		}
		return nil
	})
	return all
}

// only returns the one thing that is left over.
func (w *world) only(d *Driver) operator.Leftover {
	w.Helper()
	all := w.leftovers(d, "")
	if len(all) != 1 {
		w.Fatalf("left over are %+v, want one", all)
	}
	return slices.Collect(maps.Values(all))[0]
}

func (w *world) removes(d *Driver, l operator.Leftover) {
	w.Helper()
	if stays, err := d.RemoveLeftover(w.ctx, l); err != nil || stays != 0 {
		w.Fatalf("RemoveLeftover of %+v: %v, %v", l, stays, err)
	}
}

// leaves fails unless a leftover is no longer as it was listed.
func (w *world) leaves(d *Driver, l operator.Leftover) {
	w.Helper()
	if _, err := d.RemoveLeftover(w.ctx, l); !errors.Is(err, driver.ErrNotHeld) {
		w.Fatalf("RemoveLeftover of %+v: %v, want ErrNotHeld", l, err)
	}
}

// makes makes a node of a kind in a key's directory, which it makes as well, and returns its path.
func (w *world) makes(d *Driver, key, name string, data []byte, k zk.Kind) string {
	w.Helper()
	s, err := w.admin.session(w.ctx)
	if err == nil {
		err = d.make(w.ctx, s)
	}
	if err != nil {
		w.Fatal(err)
	}
	path := d.dir(key) + "/" + name
	for {
		dir, node := zk.Create(d.dir(key), nil, w.admin.acl, zk.Container), zk.Create(path, data, w.admin.acl, k)
		if err := s.Do(w.ctx, dir, node); err != nil { // the directory may be there
			w.Fatal(err)
		}
		switch {
		case node.Err == nil:
			return path
		case !absent(node.Err): // else the servers took the empty directory away in between
			w.Fatal(node.Err)
		}
	}
}

// inPlace makes a node one of no session, under its name.
func (w *world) inPlace(path string, data []byte) {
	w.Helper()
	w.do(w.admin, zk.Multi(zk.Delete(path), zk.Create(path, data, w.admin.acl, zk.Persistent)))
}

// path is that of the first node of a key.
func (w *world) path(d *Driver, key string) string {
	w.Helper()
	s, err := w.admin.session(w.ctx)
	if err != nil {
		w.Fatal(err)
	}
	q, err := d.read(w.ctx, s, d.dir(key))
	if err != nil || len(q) == 0 {
		w.Fatalf("%q has the nodes %+v, %v", key, q, err)
	}
	return d.dir(key) + "/" + q[0].Name
}

const curator = "_c_0a1b2c3d-4e5f-4678-9abc-def012345678-"

// All is found that is below the prefix, which is a text, over any number of keys.
func TestLeftoversWalk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	const n = 2*sweepKeys + 1
	for i := range n {
		w.grant(d, ask(fmt.Sprint("n", i)))
	}
	for _, key := range []string{"a*", "ab", "a/b", "b", "\x00\n", "\xff", ".released", "\x1b]0;t\a\u202e"} {
		w.makes(d, key, curator+"__WRIT__0000000001", []byte("10.0.0.1"), zk.Persistent)
	}
	w.do(w.admin, zk.Create(w.root+"/%", nil, w.admin.acl, zk.Persistent), zk.Create(w.root+"/%/lock-0000000001", nil, w.admin.acl, zk.Persistent)) // no key's
	w.makes(d, "data", "config", nil, zk.Persistent)
	w.makes(d, "data", "lock-x", nil, zk.Persistent)
	held := 0
	for _, err := range d.ListLeftovers(w.ctx, "", func(i driver.Info) {
		if held++; !i.Held || i.Fence == 0 || i.Holder.Label != "a test" || i.Key[0] != 'n' {
			t.Errorf("held is %+v", i)
		}
	}) {
		must(t, err)
	}
	if held != n {
		t.Errorf("%d are held, want %d", held, n)
	}
	for prefix, want := range map[string]int{"a": 3, "a*": 1, "a/": 1, "\x00": 1, "\xff": 1, ".": 1, "": 8, "none": 0, "n": 0} {
		if all := w.leftovers(d, prefix); len(all) != want {
			t.Errorf("of %q there are %d left over, want %d", prefix, len(all), want)
		}
	}
	for _, err := range d.ListLeftovers(w.ctx, "", nil) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	for l, err := range d.ListLeftovers(ctx, "", nil) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of its context: %+v, %v", l, err)
		}
	}
	empty := New(w.admin, &Options{Root: w.root + "/none"})
	if all := w.leftovers(empty, ""); len(all) != 0 {
		t.Errorf("below a root that is absent: %+v", all)
	}
}

// A node of another program that no session ends is foreign, whether it holds the key or waits, and goes only while it is what was seen.
func TestForeignLeftovers(t *testing.T) {
	t.Parallel()
	for layout, names := range map[Layout][2]string{
		ReadWrite: {curator + "__WRIT__0000000001", curator + "__READ__0000000002"},
		Mutex:     {curator + "lock-0000000001", "lock-0000000002"},
		Semaphore: {"leases/" + curator + "lease-0000000001", "locks/" + curator + "lock-0000000002"},
	} {
		w := newWorld(t)
		d := New(w.connect(w.server.Addr(), time.Hour), &Options{Root: w.root, Layout: layout})
		label := "peer\x00\n" + strings.Repeat("x", driver.MaxLabel)
		var paths []string
		for i, name := range names {
			if layout == Semaphore {
				w.makes(d, "k", []string{recipe.Leases, recipe.Locks}[i], nil, zk.Container)
			}
			paths = append(paths, w.makes(d, "k", name, []byte(label), zk.Persistent))
		}
		all := w.leftovers(d, "")
		for _, path := range paths {
			l := all[path]
			if l.Key != "k" || !l.Foreign() || l.Live || l.Fence != 0 || l.Holder.Label != label[:driver.MaxLabel] {
				t.Fatalf("%q is listed as %+v", path, l)
			}
			ours := l
			ours.Holder.Foreign = false
			if _, err := d.RemoveLeftover(w.ctx, ours); err == nil || errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("another program's is removed as ours: %v", err)
			}
			live := l
			live.Live = true
			w.leaves(d, live)
			w.do(w.admin, zk.Set(path, []byte(label)))
			w.leaves(d, l)
			l = w.leftovers(d, "")[path]
			w.inPlace(path, []byte(label))
			w.leaves(d, l)
			w.do(w.admin, zk.Multi(zk.Delete(path), zk.Create(path, []byte(label), w.admin.acl, zk.Ephemeral)))
			w.leaves(d, l)
			if all := w.leftovers(d, ""); all[path].Key != "" {
				t.Errorf("with a session %q is left over: %+v", path, all)
			}
			w.inPlace(path, nil)
			w.removes(d, w.leftovers(d, "")[path])
			w.leaves(d, l)
		}
		a := ask("k")
		w.grant(d, a)
		w.leaves(d, all[paths[0]])
	}
}

// Whatever becomes of a leftover between the look at it and its removal: what a session has is never deleted.
func TestRemovalOvertaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	path := w.makes(d, "k", curator+"__WRIT__0000000001", nil, zk.Persistent)
	for what, change := range map[string]func(){
		"it is a session's":       func() { w.do(w.admin, zk.Multi(zk.Delete(path), zk.Create(path, nil, w.admin.acl, zk.Ephemeral))) },
		"it was written":          func() { w.do(w.admin, zk.Set(path, nil)) },
		"it is gone":              func() { w.do(w.admin, zk.Delete(path)) },
		"it and its key are gone": func() { w.do(w.admin, zk.Multi(zk.Delete(path), zk.Delete(d.dir("k")))) },
	} {
		if w.has(path) {
			w.do(w.admin, zk.Delete(path))
		}
		w.makes(d, "k", curator+"__WRIT__0000000001", nil, zk.Persistent)
		l := w.only(d)
		const multi = 14
		p.Hook(beforeOp(multi, change))
		w.leaves(d, l)
		p.Hook(nil)
		if is := w.has(path); is != (what == "it is a session's" || what == "it was written") {
			t.Errorf("%s, and the node is there: %v", what, is)
		}
	}
}

// A folder that a client uses at this moment stays.
func TestRemovalOfAFolderOvertaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	w.grant(d, ask("held"))
	w.do(w.admin, zk.Create(d.dir("k"), nil, w.admin.acl, zk.Persistent))
	var l operator.Leftover
	sw := &sweep{d: d, yield: func(found operator.Leftover) bool { l = found; return true }}
	if err := sw.walk(w.ctx, ""); err != nil || l.Name != d.dir("k") {
		t.Fatalf("listed is %+v, %v", l, err)
	}
	const multi = 14
	p.Hook(beforeOp(multi, func() { w.do(w.admin, zk.Create(d.dir("k")+"/lock-0000000001", nil, w.admin.acl, zk.Ephemeral)) }))
	w.leaves(d, l)
	p.Hook(nil)
	if !w.has(d.dir("k")) {
		t.Error("it is gone")
	}
}

// beforeOp calls f once, before a request of an operation reaches the server.
func beforeOp(op byte, f func()) func(faultproxy.Chunk) bool {
	done := false
	return func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Up && !done {
			for b := c.Data; len(b) >= 12; b = b[min(len(b), 4+int(binary.BigEndian.Uint32(b))):] {
				if binary.BigEndian.Uint32(b[8:]) == uint32(op) && !done {
					done = true
					f()
				}
			}
		}
		return false
	}
}

// has reports whether a node exists.
func (w *world) has(path string) bool {
	w.Helper()
	s, err := w.admin.session(w.ctx)
	node := zk.Exists(path)
	if err == nil {
		err = s.Do(w.ctx, barrier(path), node)
	}
	if err != nil {
		w.Fatal(err)
	}
	return node.Err == nil
}

// A holder whose node was made one of no session, under its name, makes it its own again when it renews. Until then it is live.
func TestRenewalTakesBackItsNode(t *testing.T) {
	t.Parallel()
	for _, layout := range []Layout{ReadWrite, Mutex, Semaphore} {
		w := newWorld(t)
		d := New(w.connect(w.server.Addr(), time.Hour), &Options{Root: w.root, Layout: layout})
		lost := told(d)
		a := ask("k")
		fence := w.grant(d, a).Fence
		path := w.path(d, "k")
		s, err := w.admin.session(w.ctx)
		must(t, err)
		get := zk.Get(path)
		if err := s.Do(w.ctx, get); err != nil || get.Err != nil {
			t.Fatal(err, get.Err)
		}
		data := recipe.Decode(get.Data)
		data.Fence = fence
		for _, data := range [][]byte{data.Encode(), []byte("damaged")} {
			w.inPlace(path, data)
			l := w.only(d)
			if l.Kind != operator.LeftLease || !l.Live || l.Foreign() || l.Holder.Owner != a.Owner || l.Name != path {
				t.Fatalf("layout %d: listed as %+v", layout, l)
			}
			w.leaves(d, l)
			l.Live = false
			w.leaves(d, l)
			if r := w.renew(d, a); r.Err != nil || r.TTL <= 0 {
				t.Fatalf("layout %d: the renewal: %+v", layout, r)
			}
			if all := w.leftovers(d, ""); len(all) != 0 {
				t.Errorf("layout %d: after the renewal there is left over %+v", layout, all)
			}
			w.leaves(d, l)
		}
		w.refuse(w.driverIn(layout), ask("k"))
		if r := w.renew(d, a); r.Err != nil {
			t.Errorf("layout %d: another renewal: %+v", layout, r)
		}
		select {
		case id := <-lost:
			t.Errorf("layout %d: told of %v", layout, id)
		default:
		}
		w.release(d, a)
		w.grant(w.driverIn(layout), ask("k"))
	}
}

// driverIn is one with a session and a layout of its own.
func (w *world) driverIn(layout Layout) *Driver {
	return New(w.connect(w.server.Addr(), time.Hour), &Options{Root: w.root, Layout: layout})
}

// A place of no session is left over a minute after its owner would have had to renew it.
func TestPlacesLeftOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.driver(), w.driver()
	holder, dead := ask("k"), queued(ask("k"))
	dead.TTL = time.Second
	w.grant(d, holder)
	w.refuse(other, dead)
	s, err := d.c.session(w.ctx)
	must(t, err)
	q, err := d.read(w.ctx, s, d.dir("k"))
	if err != nil || len(q) != 2 {
		t.Fatal(q, err)
	}
	path := d.dir("k") + "/" + q[1].For(q[1].Mark, 1).Name
	w.do(w.admin, zk.Multi(zk.Delete(d.dir("k")+"/"+q[1].Name), zk.Create(path, recipe.Content{TTL: dead.TTL, Label: dead.Label}.Encode(), w.admin.acl, zk.Persistent)))
	if all := w.leftovers(d, ""); len(all) != 0 {
		t.Errorf("left over are %+v", all)
	}
	dirs, err := d.directories(w.ctx, pace{s: s}, []string{"k"})
	must(t, err)
	written := time.UnixMilli(dirs[0].gets[1].Stat.Mtime)
	if all := dirs[0].nodes(written.Add(dead.TTL + linger)); len(all) != 0 {
		t.Errorf("after a minute there is left over %+v", all)
	}
	all := dirs[0].nodes(written.Add(dead.TTL + linger + time.Millisecond))
	if len(all) != 1 || all[0].Kind != operator.LeftPlace || all[0].Name != path || all[0].Holder.Owner != dead.Owner || all[0].Holder.Label != dead.Label || all[0].Live {
		t.Fatalf("listed as %+v", all)
	}
	w.eventually("it is removed", func() bool {
		_, err := d.RemoveLeftover(w.ctx, all[0])
		return err == nil
	})
	w.leaves(d, all[0])
	w.release(d, holder)
	w.grant(d, ask("k"))
}

// Folders that no server deletes are left over when they have been empty for a while, by what other nodes say of the time.
func TestEmptyFolders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	list := func(d *Driver, rest time.Duration) map[string]operator.Leftover {
		t.Helper()
		all := map[string]operator.Leftover{}
		sw := &sweep{d: d, rest: rest, yield: func(l operator.Leftover) bool { all[l.Name] = l; return true }}
		must(t, sw.walk(w.ctx, ""))
		return all
	}
	plain := func(path string, data []byte) { w.do(w.admin, zk.Create(path, data, w.admin.acl, zk.Persistent)) }
	w.grant(d, ask("held"))
	for _, key := range []string{"a", "b", "c"} {
		plain(d.dir(key), nil)
	}
	plain(d.dir("data"), []byte("x"))
	plain(d.dir("c")+"/config", nil)
	if all := w.leftovers(d, ""); len(all) != 0 {
		t.Errorf("left over at once: %+v", all)
	}
	all := list(d, 0)
	if len(all) != 2 || all[d.dir("a")].Key != "a" || all[d.dir("b")].Kind != operator.LeftSidecar {
		t.Fatalf("left over are %+v", all)
	}
	w.do(w.admin, zk.Create(d.dir("a")+"/x", nil, w.admin.acl, zk.Persistent))
	w.leaves(d, all[d.dir("a")])
	w.do(w.admin, zk.Delete(d.dir("a")+"/x"))
	w.leaves(d, all[d.dir("a")]) // a client has used it since
	w.removes(d, all[d.dir("b")])
	w.leaves(d, all[d.dir("b")])
	if again := list(d, 0); len(again) != 0 { // nothing that was read was written after that
		t.Errorf("left over are %+v", again)
	}
	w.grant(d, ask("later"))
	again := list(d, 0)
	w.removes(d, again[d.dir("a")])
	plain(d.dir("a"), nil)
	a := ask("a")
	w.grant(d, a)
	w.leaves(d, all[d.dir("a")])
	w.release(d, a)

	sem := w.driverIn(Semaphore)
	plain(d.dir("s"), nil)
	plain(d.dir("s")+"/locks", nil)
	plain(d.dir("s")+"/leases", nil)
	all = list(sem, 0)
	for _, folder := range []string{"/locks", "/leases"} {
		if l := all[d.dir("s")+folder]; l.Key != "s" || l.Kind != operator.LeftSidecar {
			t.Fatalf("%s is listed as %+v", folder, l)
		}
		w.removes(sem, all[d.dir("s")+folder])
	}
	plain(d.dir("s")+"/leases", nil)
	w.grant(sem, ask("s"))
	w.grant(d, ask("last"))
	if all = list(sem, 0); all[d.dir("s")+"/locks"].Key != "" || all[d.dir("s")+"/leases"].Key != "" {
		t.Errorf("of a key that is held there is left over %+v", all)
	}
}

// Where a folder became empty before nothing that is known to be old, it is not.
func TestWhatIsOld(t *testing.T) {
	t.Parallel()
	now := time.Now()
	sw := &sweep{now: now, rest: rest}
	ago := func(age time.Duration) int64 { return now.Add(-age).UnixMilli() }
	sw.saw(zk.Stat{Czxid: 5, Ctime: ago(2 * rest), Mzxid: 9, Mtime: ago(rest - time.Second)})
	sw.saw(zk.Stat{Czxid: 3, Ctime: ago(3 * rest), Mzxid: 3, Mtime: ago(3 * rest)})
	if sw.old != 5 {
		t.Errorf("old are writes up to %d, want 5", sw.old)
	}
}

// Marks of released owners that no session ends are listed where all keys are.
func TestMarksOfReleasedOwnersLeftOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	a := ask("k")
	w.grant(d, a)
	a.Settled = false
	w.release(d, a)
	tomb := d.tomb(ask("k").Claim())
	w.do(w.admin, zk.Create(tomb, nil, w.admin.acl, zk.Persistent), zk.Create(d.released()+"/other", nil, w.admin.acl, zk.Persistent))
	if all := w.leftovers(d, "k"); len(all) != 0 {
		t.Errorf("of a prefix there is left over %+v", all)
	}
	l := w.only(d)
	if l.Key != "" || l.Name != tomb || l.Kind != operator.LeftSidecar || l.Foreign() {
		t.Errorf("listed as %+v", l)
	}
	w.removes(d, l)
	w.leaves(d, l)
}

// What the servers do not allow is said with its path.
func TestLeftoversDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	path := w.makes(d, "k", "x", nil, zk.Persistent) // the directory stays
	const all, read = 31, 1
	only := func(perms int32) []zk.ACL { return []zk.ACL{{Perms: perms, Scheme: "world", ID: "anyone"}} }
	node := d.dir("k") + "/" + curator + "__WRIT__0000000001"
	w.do(w.admin, zk.Delete(path), zk.Create(node, nil, only(read), zk.Persistent))
	l := w.only(d)
	if _, err := d.RemoveLeftover(w.ctx, l); d.Classify(err) != driver.ClassDenied || !strings.Contains(err.Error(), fmt.Sprintf("to delete %q", node)) {
		t.Errorf("RemoveLeftover: %v", err)
	}
	w.do(w.admin, zk.Create(d.dir("l"), nil, only(all&^read), zk.Persistent))
	for _, err := range d.ListLeftovers(w.ctx, "", nil) {
		if err != nil && (d.Classify(err) != driver.ClassDenied || !strings.Contains(err.Error(), fmt.Sprintf("to read %q", d.dir("l")))) {
			t.Errorf("ListLeftovers: %v", err)
		}
	}
}

// A State that came from elsewhere removes nothing.
func TestLeftoversOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	path := w.makes(d, "k", curator+"__WRIT__0000000001", nil, zk.Persistent)
	w.makes(d, "k", "config", nil, zk.Persistent)
	l := w.only(d)
	for _, change := range []func(*operator.Leftover){
		func(l *operator.Leftover) { l.Key = "" }, func(l *operator.Leftover) { l.Key = "other" }, func(l *operator.Leftover) { l.Name = "/other" },
		func(l *operator.Leftover) { l.Name += "/x" }, func(l *operator.Leftover) { l.Name = d.dir("k") + "/config" }, func(l *operator.Leftover) { l.Name = d.dir("k") },
		func(l *operator.Leftover) { l.State = "" }, func(l *operator.Leftover) { l.Kind = "other" }, func(l *operator.Leftover) { l.Kind = operator.LeftPlace },
		func(l *operator.Leftover) { l.Kind = operator.LeftSidecar }, func(l *operator.Leftover) { l.Holder.Foreign = false },
		func(l *operator.Leftover) { l.Key, l.Name, l.Kind = "", d.released()+"/x", operator.LeftSidecar },
		func(l *operator.Leftover) { l.Key, l.Name = strings.Repeat("k", driver.MaxKey+1), path },
	} {
		bad := l
		change(&bad)
		if _, err := d.RemoveLeftover(w.ctx, bad); err == nil {
			t.Errorf("removed %+v", bad)
		}
	}
	if !w.has(path) {
		t.Error("it is gone")
	}
	broken := New(nil, nil)
	for _, err := range broken.ListLeftovers(w.ctx, "", nil) {
		if err == nil {
			t.Error("a driver without a connection lists")
		}
	}
	if _, err := broken.RemoveLeftover(w.ctx, l); err == nil {
		t.Error("a driver without a connection removes")
	}
	d.c.Close()
	if _, err := d.RemoveLeftover(w.ctx, l); err == nil {
		t.Error("a closed connection removes")
	}
}

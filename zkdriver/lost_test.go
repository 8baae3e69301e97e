// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// The numbers of operations, as they are sent.
const (
	opDelete   = 2
	opSet      = 5
	opChildren = 12
	opMulti    = 14
	opCreate2  = 15
)

// A node whose create had no answer is found again by its name, and the owner has no second one.
func TestLostCreateIsFoundAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for key, queue := range map[string]bool{"k": false, "queued": true} {
		d, p := w.behind(time.Hour)
		r := ask(key)
		r.Queue = queue
		w.stays(d, key)
		lost := losesReply(p, opCreate2)
		if res, err := contend.Try(w.ctx, d, r); err == nil || driver.IsNotSent(err) {
			t.Fatalf("the answer was lost, and the Try says %+v, %v", res, err)
		}
		comes(w, lost, "lost answer")
		if n := len(w.queue(key)); n != 1 {
			t.Fatalf("%d nodes after the create", n)
		}
		res := w.grant(d, r)
		if q := w.queue(key); len(q) != 1 {
			t.Errorf("%d nodes after the second Try", len(q))
		}
		if again := w.grant(d, r); again.Fence != res.Fence {
			t.Errorf("the fence was %d, is %d", res.Fence, again.Fence)
		}
		w.release(d, r)
		if n := len(w.queue(key)); n != 0 {
			t.Errorf("%d nodes after the release", n)
		}
	}
}

// stays makes a key's directory, which is not deleted.
func (w *world) stays(d *Driver, key string) {
	w.Helper()
	w.answered(d, func() error {
		s, err := d.c.session(w.ctx)
		if err == nil {
			err = d.make(w.ctx, s)
		}
		return err
	})
	w.do(w.admin, zk.Multi(zk.Create(d.dir(key), nil, w.admin.acl, zk.Container), zk.Create(d.dir(key)+"/stays", nil, w.admin.acl, zk.Ephemeral)))
}

// A node whose create had no answer, and which its owner does not ask for again, is given up after the TTL.
func TestLostCreateIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	w.stays(d, "k")
	r := ask("k")
	lost := losesReply(p, opCreate2)
	if _, err := contend.Try(w.ctx, d, queued(r)); err == nil {
		t.Fatal("the answer was not lost")
	}
	comes(w, lost, "lost answer")
	if n := len(w.queue("k")); n != 1 {
		t.Fatalf("%d nodes after the create", n)
	}
	w.passes(d, r)
	w.eventually("the node is gone", func() bool { return len(w.queue("k")) == 0 })
}

// A release whose answer was lost has released; the second one finds nothing, and touches no other owner.
func TestLostRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	r := ask("k")
	r.Settled = true
	w.grant(d, r)
	lost := losesReply(p, opDelete)
	if err := contend.Release(w.ctx, d, r); err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("the answer was lost, and Release says %v", err)
	}
	comes(w, lost, "lost answer")
	next := ask("k")
	other := w.driver()
	w.grant(other, next)
	r.Settled = false
	if err := contend.Release(w.ctx, d, r); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the second Release says %v", err)
	}
	if q := w.queue("k"); len(q) != 1 || q[0].Owner != next.Owner {
		t.Errorf("the queue is %+v", q)
	}
}

// The mark of a released owner does not stay when the answer to its create was lost.
func TestLostMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	r := ask("k")
	w.grant(d, r)
	lost := losesReply(p, opCreate2)
	if err := contend.Release(w.ctx, d, r); err == nil {
		t.Fatal("the answer was not lost")
	}
	comes(w, lost, "lost answer")
	w.release(d, r)
	w.eventually("the mark is gone", func() bool {
		marks := zk.Children(d.released(), nil)
		w.do(w.admin, zk.Sync(d.released()), marks)
		return len(marks.Children) == 0
	})
}

// A lease that this session took over is renewed, although the answer that says so was lost.
func TestLostTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	r := ask("k")
	fence := w.grant(w.driver(), r).Fence
	lost := losesReply(p, opSet)
	if a := w.renew(d, r); a.Err == nil || errors.Is(a.Err, driver.ErrNotHeld) {
		t.Fatalf("the answer was lost, and the renewal says %+v", a)
	}
	comes(w, lost, "lost answer")
	if a := w.renew(d, r); a.Err != nil || a.TTL != r.TTL {
		t.Errorf("the next renewal: %+v", a)
	}
	if res := w.grant(d, r); res.Fence != fence {
		t.Errorf("the fence was %d, is %d", fence, res.Fence)
	}
}

// A create that had no answer is not forgotten when a later request comes to nothing.
func TestLostCreateIsRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	s, err := d.c.session(w.ctx)
	must(t, err)
	r := ask("k")
	a, err := d.attempt(w.ctx, s, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL, Queue: true}, time.Now(), false)
	must(t, err)
	defer d.c.unlock(a.e)
	gone := recipe.Node{Kind: recipe.Write, Seq: 1}.For(a.e.mark, 7)
	join := a.Begin(recipe.Known{})
	for what, step := range map[string]recipe.Step{
		"a key without a directory": join,
		"an overtaken take-over":    {Do: recipe.Change, Node: gone, To: gone.For(a.e.mark, s.ID()), Data: recipe.Content{TTL: r.TTL}},
	} {
		d.c.begin(a.e, s, time.Now().Add(time.Hour))
		next, _, err := a.do(step)
		if now := d.c.record(a.e); err != nil || next.Do != recipe.Again || !now.Unsure {
			t.Errorf("%s: it does %d, %v, and knows %+v", what, next.Do, err, now)
		}
	}
	d.c.unname(a.e)
	d.c.found(a.e, s, gone, recipe.Content{TTL: r.TTL})
	if _, _, err := a.do(recipe.Step{Do: recipe.Undo, Node: gone}); err != nil || !d.c.record(a.e).Unsure {
		t.Errorf("a node that was made in vain: %v, and it knows %+v", err, d.c.record(a.e))
	}
}

// A create without an answer that is carried out once its owner joined again, and was released, leaves nothing for long.
func TestLostCreateComesLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	w.stays(d, "k")
	r := ask("k")
	lost := losesReply(p, opCreate2)
	if _, err := contend.Try(w.ctx, d, r); err == nil {
		t.Fatal("the answer was not lost")
	}
	comes(w, lost, "lost answer")
	w.grant(d, r)
	w.release(d, r)
	s, err := d.c.session(w.ctx)
	must(t, err)
	pl, mark := d.place(r.Claim()), recipe.MarkOf(r.Claim())
	late := zk.Create(pl.dir+"/"+recipe.Node{Kind: recipe.Write}.Prefix(mark, s.ID()), recipe.Content{TTL: r.TTL}.Encode(), d.c.acl, zk.EphemeralSequential)
	if err := s.Do(w.ctx, late); err != nil || late.Err != nil || len(w.queue("k")) != 1 {
		t.Fatalf("the late create: %v, %v", err, late.Err)
	}
	w.eventually("the late node is gone", func() bool { return len(w.queue("k")) == 0 })
}

// A convert whose answer was lost is found done, with its fence.
func TestLostConvert(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	r := ask("k")
	fence := w.grant(d, r).Fence
	lost := losesReply(p, opMulti)
	r.Convert, r.Mode = true, driver.Shared
	if _, err := contend.Try(w.ctx, d, r); err == nil {
		t.Fatal("the answer was not lost")
	}
	comes(w, lost, "lost answer")
	if res := w.grant(d, r); res.Fence != fence {
		t.Errorf("the fence was %d, is %d", fence, res.Fence)
	}
	w.grant(w.driver(), reader(ask("k")))
	must(t, w.renew(d, r).Err)
	w.release(d, r)
}

// A renewal whose answer was lost says so, and the next one is answered.
func TestLostRenewal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	tells := told(d)
	r := ask("k")
	w.grant(d, r)
	lost := losesReply(p, opSet)
	if a := w.renew(d, r); a.Err == nil || errors.Is(a.Err, driver.ErrNotHeld) {
		t.Fatalf("the answer was lost, and the renewal says %+v", a)
	}
	comes(w, lost, "lost answer")
	if a := w.renew(d, r); a.Err != nil || a.TTL != r.TTL {
		t.Errorf("the next renewal: %+v", a)
	}
	select {
	case id := <-tells:
		t.Errorf("told that %v is lost", id)
	default:
	}
}

// What was not sent says so, and is not in the store.
func TestNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	p.Refuse()
	r := ask("k")
	_, err := contend.Try(w.ctx, d, r)
	if !driver.IsNotSent(err) || d.Classify(err) != driver.ClassUnreachable {
		t.Errorf("no server could be reached: %v, of class %d", err, d.Classify(err))
	}
	p.Clear()
	w.eventually("the key is granted", func() bool { // an attempt to connect that was refused may still end
		res, err := contend.Try(w.ctx, d, r)
		if err != nil && !driver.IsNotSent(err) {
			t.Fatal(err)
		}
		return res.Granted
	})
}

// A folder of a semaphore is never made without a node in it: a container that never had a child is not deleted by the servers.
func TestFolderIsMadeWithItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := faultproxy.New(w, w.server.Addr())
	d := New(w.connect(p.Addr(), time.Hour), &Options{Root: w.root, Layout: Semaphore})
	w.stays(d, "k") // the directory without its folders
	const opCreateContainer = 19
	losesReply(p, opCreateContainer)
	r := ask("k")
	_, err := contend.Try(w.ctx, d, r)
	s, sessionErr := w.admin.session(w.ctx)
	must(t, sessionErr)
	folder := zk.Exists(d.dir("k") + "/" + recipe.Locks)
	w.do(w.admin, zk.Sync(d.dir("k")))
	must(t, s.Do(w.ctx, folder))
	if folder.Err == nil && folder.Stat.NumChildren == 0 && folder.Stat.Cversion == 0 {
		t.Errorf("the folder never had a child (%v)", err)
	}
	w.grant(d, r)
	w.release(d, r)
}

// A lease that another client took over, or that was broken, while its owner's Try was being answered is not granted without its fence.
func TestGrantOfANodeThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	r := ask("k")
	w.grant(d, r)
	s, err := d.c.session(w.ctx)
	must(t, err)
	a, err := d.attempt(w.ctx, s, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL}, time.Now(), false)
	must(t, err)
	defer d.c.unlock(a.e)
	n := w.queue("k")[0]
	d.c.forget(a.e, false) // as missing does, when the server says that the node is gone
	if res, err := a.grant(n); err != nil || res != nil {
		t.Errorf("granted %+v, %v", res, err)
	}
}

// A copy of a request, on another connection, may make the first one's node its own before that has read when the
// node was made: both are granted the key, with one fence.
func TestCopyTakesTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	far, p := w.behind(time.Hour)
	near := w.driver()
	w.grant(near, ask("other")) // which makes the root
	r := ask("k")
	const opExists, opMulti = 3, 14
	var copied driver.Result
	var mu sync.Mutex
	multi, made, done := false, false, false
	p.Hook(func(c faultproxy.Chunk) bool {
		mu.Lock()
		defer mu.Unlock()
		made = made || multi && c.Dir == faultproxy.Down
		for _, op := range operations(c.Data) {
			switch up := c.Dir == faultproxy.Up; {
			case up && op == opMulti:
				multi = true
			case up && op == opExists && made && !done:
				done = true
				copied, _ = contend.Try(w.ctx, near, r)
			}
		}
		return false
	})
	if res := w.grant(far, r); !copied.Granted || res.Fence != copied.Fence {
		t.Errorf("granted %+v, and the copy %+v", res, copied)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"crypto/sha1" //nolint:gosec // ZooKeeper's digests
	"encoding/base64"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// brief is the time-out of sessions that end: long enough for a machine under load.
const brief = 6 * testserver.ZooKeeperTick

// When the session has expired the holder is told, a waiter gets a hint and loses its place, and both may ask anew.
func TestSessionExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(brief)
	other, tells := w.driver(), told(d)
	a, b, first := ask("a"), ask("b"), ask("b")
	fence := w.grant(d, a).Fence
	w.grant(other, first)
	hints := w.hints(d, b)
	w.refuse(d, queued(b))
	p.Refuse()
	p.CloseAll()
	comes(w, hints, "hint when the connection was lost")
	w.eventually("the session's nodes are gone", func() bool { return len(w.queue("a")) == 0 && len(w.queue("b")) == 1 })
	next := ask("a")
	w.grant(other, next)
	p.Clear()
	if id := comes(w, tells, "word of the loss"); id != a.Claim().ID() {
		t.Errorf("told of %v", id)
	}
	comes(w, hints, "hint")
	if r := w.renew(d, a); !errors.Is(r.Err, driver.ErrNotHeld) {
		t.Errorf("the renewal: %+v", r)
	}
	if err := contend.Release(w.ctx, d, a); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the release: %v", err)
	}
	w.refuse(d, queued(b))
	w.release(other, next)
	if res := w.grant(d, ask("a")); res.Fence <= fence {
		t.Errorf("the fence is %d after %d", res.Fence, fence)
	}
}

// No answer promises a lease for longer than the session is assured, however long it is asked for.
func TestTTLIsTheSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, _ := w.behind(2 * time.Hour)
	c := w.connect(w.server.Addr(), 30*time.Minute)
	short := w.over(c)
	if got, want := short.Traits().MaxTTL, 20*time.Minute; got != want {
		t.Errorf("MaxTTL is %v, want %v", got, want)
	}
	r := ask("k")
	r.TTL = time.Hour
	start := time.Now()
	var s *zk.Session
	w.answered(short, func() (err error) { s, err = c.session(w.ctx); return err })
	if res := w.grant(short, r); start.Add(res.TTL).After(s.Assured()) || res.TTL <= 10*time.Minute {
		t.Errorf("granted for %v", res.TTL)
	}
	start = time.Now()
	if a := w.renew(short, r); start.Add(a.TTL).After(s.Assured()) || a.TTL <= 10*time.Minute {
		t.Errorf("renewed for %v", a.TTL)
	}
	if res := w.grant(d, ask("other")); res.TTL != time.Minute {
		t.Errorf("granted for %v", res.TTL)
	}
}

// What is promised is by the session that the servers granted, once they have, and a TTL that was right before stays so.
func TestTraitsAreTheGrantedSessions(t *testing.T) {
	t.Parallel()
	w := worldOf(t, testserver.ZooKeeper(t, "minSessionTimeout=6000", "maxSessionTimeout=24000"))
	for _, c := range []struct{ asked, granted, longest time.Duration }{
		{time.Minute, 24 * time.Second, 16 * time.Second},
		{9 * time.Second, 9 * time.Second, 6 * time.Second},
		{3 * time.Second, 6 * time.Second, 2 * time.Second},
	} {
		d := w.over(w.connect(w.server.Addr(), c.asked))
		client, err := hasp.New(d, nil)
		must(t, err)
		o := &hasp.LockOptions{TTL: c.asked / 3 * 2}
		if tr := client.Traits(); tr.MaxTTL != o.TTL || d.Session() != c.asked {
			t.Errorf("%v asked for: %+v before the servers were reached", c.asked, tr)
		}
		m, lost := client.Mutex("k", o), w.stalls()
		for range 2 {
			l, err := m.Lock(w.ctx)
			must(t, err)
			if err := l.Release(); err != nil && (!errors.Is(err, hasp.ErrLost) || lost() <= c.longest/4) {
				t.Errorf("while the machine lost %v: %v", lost(), err)
			}
		}
		if tr := client.Traits(); tr.MaxTTL != c.longest || d.Session() != c.granted {
			t.Errorf("%v asked for: %+v", c.asked, tr)
		}
		found, err := d.Examine(w.ctx)
		if err != nil || (found[0].Level == operator.LevelOK) != (c.asked == c.granted) ||
			slices.ContainsFunc(found, func(f operator.Finding) bool { return f.Check == "leader" }) != (c.granted < 12*time.Second) {
			t.Errorf("%v asked for: %+v, %v", c.asked, found, err)
		}
		_ = client.Close()
	}
}

// The loss of a lease whose node another client deletes is told at once; a take-over is no loss.
func TestTellOfADeletedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.driver(), w.driver()
	tells := told(d)
	moved, broken, own := ask("moved"), ask("broken"), ask("own")
	for _, r := range []contend.Owner{moved, broken, own} {
		w.grant(d, r)
	}
	must(t, w.renew(other, moved).Err)
	w.release(d, own)
	w.eventually("the first client has noticed the move", func() bool {
		d.c.mu.Lock()
		defer d.c.mu.Unlock()
		return d.c.entries[d.place(moved.Claim())] == nil
	})
	w.release(other, broken)
	if id := comes(w, tells, "word of the loss"); id != broken.Claim().ID() {
		t.Errorf("told of %v", id)
	}
	if a := w.renew(d, moved); a.Err != nil {
		t.Errorf("taken back: %v", a.Err)
	}
}

// The loss of a lease is told although the watch on its node was lost, with the answer to the call that set it.
func TestTellAfterALostWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	r := ask("k")
	w.grant(d, r)
	tells := told(d)
	lost := losesReply(p, opChildren)
	p.Reset() // once it is connected again it watches what it holds
	comes(w, lost, "lost answer")
	w.do(w.admin, zk.Delete(d.dir("k")+"/"+w.queue("k")[0].Name))
	if id := comes(w, tells, "word of the loss"); id != r.Claim().ID() {
		t.Errorf("told of %v", id)
	}
}

// The loss of a lease is told although the server does not let us see, for a while, whether another client took it over.
func TestTellAfterADeniedLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	tells, denied := told(d), answers(p, zk.ErrNoAuth)
	r := ask("k")
	w.grant(d, r)
	dir := d.dir("k")
	unreadable := []zk.ACL{{Perms: 31 &^ 1, Scheme: "world", ID: "anyone"}}
	w.do(w.admin, zk.Multi(zk.Delete(dir+"/"+w.queue("k")[0].Name), zk.Delete(dir), zk.Create(dir, nil, unreadable, zk.Persistent)))
	comes(w, denied, "answer that it may not look")
	w.do(w.admin, zk.Delete(dir))
	if id := comes(w, tells, "word of the loss"); id != r.Claim().ID() {
		t.Errorf("told of %v", id)
	}
}

// A lease stands over a restart of the server, with its session; a waiter is woken afterwards.
func TestServerRestart(t *testing.T) {
	w := worldOf(t, testserver.ZooKeeper(t))
	d, other := w.driver(), w.driver()
	tells := told(d)
	a, b := ask("k"), ask("k")
	fence := w.grant(d, a).Fence
	hints := w.hints(other, b)
	w.refuse(other, queued(b))
	w.server.Restart()
	comes(w, hints, "hint when the connection was lost")
	w.eventually("the lease is renewed", func() bool { return w.renew(d, a).Err == nil })
	w.eventually("the place stands", func() bool {
		res, err := contend.Try(w.ctx, other, queued(b))
		return err == nil && !res.Granted
	})
	if q := w.queue("k"); len(q) != 2 || q[0].Owner != a.Owner || q[1].Owner != b.Owner {
		t.Fatalf("the queue is %+v", q)
	}
	w.release(d, a)
	comes(w, hints, "hint")
	if res := w.grant(other, queued(b)); res.Fence <= fence {
		t.Errorf("the fence is %d after %d", res.Fence, fence)
	}
	select {
	case id := <-tells:
		t.Errorf("told that %v is lost", id)
	default:
	}
}

// What its owner does not renew is given up once there is a connection again, although its end came without one.
func TestGivenUpAfterAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	tells := told(d)
	r := ask("k")
	w.grant(d, r)
	p.Refuse()
	p.CloseAll()
	w.passes(d, r)
	w.eventually("it is to be given up", func() bool {
		d.c.mu.Lock()
		defer d.c.mu.Unlock()
		return len(d.c.ending) == 1
	})
	if n := len(w.queue("k")); n != 1 {
		t.Fatalf("%d nodes, and no connection to delete them", n)
	}
	p.Clear()
	w.eventually("the node is gone", func() bool { return len(w.queue("k")) == 0 })
	comes(w, tells, "word of the end")
}

// A grant to a waiter that needs no write is proven by an earlier one, and a grant after a long wait by a new one.
func TestGrantIsProven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const session = 15 * time.Second // of which a slow machine may take a half
	c := w.connect(w.server.Addr(), session)
	d, other := w.over(c), w.driver()
	for _, wait := range []time.Duration{0, session} {
		a, b := ask("k"), ask("k")
		b.TTL, b.Enters, b.Settled = session/2, true, true
		w.grant(other, a)
		hints := w.hints(d, b)
		w.refuse(d, queued(b))
		time.Sleep(wait) // time must pass
		w.release(other, a)
		if h := comes(w, hints, "hint"); wait > 0 && h.Handover.Fence != 0 {
			t.Errorf("after %v it is handed the key unproven: %+v", wait, h)
		}
		res := w.grant(d, queued(b))
		s, err := c.session(w.ctx)
		must(t, err)
		if left := time.Until(s.Assured()); left > s.Timeout() || res.TTL < b.TTL/2 {
			t.Errorf("after %v granted for %v, and the session is assured for %v", wait, res.TTL, left)
		}
		w.release(d, b)
	}
}

// A waiter is handed the key without a write of its own. A claim finds out that an operator has broken what was handed over, and another
// place of the same owner is not what an earlier handover tells of.
func TestHandover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, p := w.behind(time.Hour)
	other, a, b := w.driver(), ask("k"), ask("k")
	b.Enters = true
	var sets atomic.Int64
	p.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Up && slices.Contains(operations(c.Data), opSet) {
			sets.Add(1)
		}
		return false
	})
	w.grant(other, a)
	hints := w.hints(d, b)
	w.refuse(d, queued(b))
	w.release(other, a)
	to := comes(w, hints, "hint").Handover
	b.Settled = true
	w.release(other, b)
	claim := b
	claim.Fence, claim.Entered = to.Fence, true
	if r := w.renew(d, claim); !errors.Is(r.Err, driver.ErrNotHeld) || to.Fence == 0 || sets.Load() > 1 {
		t.Errorf("it is told %+v, and the claim answers %+v; it wrote %d times", to, r, sets.Load())
	}
	w.grant(other, ask("k"))
	if res := w.refuse(d, queued(b)); res.Fence < to.Fence {
		t.Errorf("a handover of before counts beside a refusal that says %d: %+v", res.Fence, to)
	}
}

// Nothing of another program's is deleted, and it is respected like our own.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	path := w.java(d, "k", "__WRIT__")
	r := ask("k")
	res := w.refuse(d, r)
	if !res.Holder.Foreign || res.Holder.Label != "10.0.0.1" || res.Holder.Owner != "" {
		t.Errorf("the holder is %+v", res.Holder)
	}
	hints := w.hints(d, r)
	w.refuse(d, queued(r))
	info, err := d.Inspect(w.ctx, "k")
	if err != nil || !info.Held || !info.Holder.Foreign || info.Waiters != 1 {
		t.Errorf("it is %+v, %v", info, err)
	}
	must(t, w.renew(d, queued(r)).Err)
	w.do(w.admin, zk.Delete(path))
	comes(w, hints, "hint")
	w.grant(d, queued(r))
}

// A node of a kind of lock that does not see ours is an error, and leaves nothing.
func TestOtherLayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for layout, marker := range map[Layout]string{ReadWrite: "lock-", Mutex: "__READ__"} {
		d := New(w.connect(w.server.Addr(), time.Hour), &Options{Root: w.root, Layout: layout})
		key := marker
		path := w.java(d, key, marker)
		for _, r := range []contend.Owner{ask(key), queued(ask(key))} {
			var layoutError *LayoutError
			_, err := contend.Try(w.ctx, d, r)
			if !errors.As(err, &layoutError) || layoutError.Path != path || d.Classify(err) != driver.ClassImpossible {
				t.Errorf("beside %q: %v", path, err)
			}
		}
		if q := w.queue(key); len(q) != 1 {
			t.Errorf("the queue is %+v", q)
		}
	}
}

// With a user the nodes are that user's alone, and another is told that it may not.
func TestUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	user := func(name, password string) *Driver {
		c := Connect([]string{w.server.Addr()}, &ConnOptions{User: name, Password: password})
		t.Cleanup(func() { _ = c.Close() })
		return w.over(c)
	}
	mine := user("me", "secret")
	r := ask("k")
	w.grant(mine, r)
	w.refuse(user("me", "secret"), ask("k"))
	for _, d := range []*Driver{user("you", "secret"), user("me", "wrong"), w.driver()} {
		_, err := contend.Try(w.ctx, d, ask("k"))
		if err == nil || d.Classify(err) != driver.ClassDenied {
			t.Errorf("another user: %v, of class %d", err, d.Classify(err))
		}
		if a := w.renew(d, r); d.Classify(a.Err) != driver.ClassDenied {
			t.Errorf("a renewal by another user: %v", a.Err)
		}
		if err := contend.Release(w.ctx, d, r); d.Classify(err) != driver.ClassDenied {
			t.Errorf("a release by another user: %v", err)
		}
	}
	w.release(mine, r)
}

// One of many that wait is refused at once, although those before it end while it looks at them: it asks once for its place.
func TestRefusalAmongMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver()
	first, second, r := ask("k"), ask("k"), ask("k")
	w.grant(d, first)
	w.refuse(d, queued(second))
	s, err := d.c.session(w.ctx)
	must(t, err)
	a, err := d.attempt(w.ctx, s, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL}, time.Now(), false)
	must(t, err)
	defer d.c.unlock(a.e)
	a.Queue = w.queue("k")
	w.release(d, first)
	w.release(d, second)
	res, err := a.refuse(len(a.Queue))
	if err != nil || res == nil || res.Ahead != 1 || res.Holder.Owner != first.Owner {
		t.Errorf("one before it: %+v, %v", res, err)
	}
	a.Queue = a.Queue[:1]
	if res, err := a.refuse(1); err != nil || res != nil {
		t.Errorf("the holder was all that was in its way, and has ended: %+v, %v", res, err)
	}
}

// A login that changes is used at the next connection, and what was made before it stays ours.
func TestLoginChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stays(w.driver(), "k") // so that both may
	p := faultproxy.New(t, w.server.Addr())
	var password atomic.Value
	password.Store("one")
	c := Connect([]string{p.Addr()}, &ConnOptions{SessionTimeout: time.Hour, Login: func(context.Context) (string, string, error) {
		return "me", password.Load().(string), nil //nolint:forcetypeassert // as it was stored
	}})
	t.Cleanup(func() { _ = c.Close() })
	d := w.over(c)
	tells := told(d)
	r := ask("k")
	w.grant(d, r)
	for _, next := range []string{"two", "three"} {
		password.Store(next)
		p.Reset()
		w.eventually("the lease is renewed", func() bool { return w.renew(d, r).Err == nil })
	}
	w.release(d, r)
	select {
	case id := <-tells:
		t.Errorf("told that %v is lost", id)
	default:
	}
}

// A login that changes is used after a refusal, over the connection that stands, and what is held stays.
func TestLoginChangesWhileConnected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stays(w.driver(), "k") // so that all may
	allow := func(password string) []zk.ACL {
		id := sha1.Sum([]byte("me:" + password)) //nolint:gosec // as ZooKeeper has it
		return []zk.ACL{{Perms: 31, Scheme: "digest", ID: "me:" + base64.StdEncoding.EncodeToString(id[:])}}
	}
	var password atomic.Value
	password.Store("one")
	p := faultproxy.New(t, w.server.Addr())
	c := Connect([]string{p.Addr()}, &ConnOptions{SessionTimeout: time.Hour, Login: func(context.Context) (string, string, error) {
		return "me", password.Load().(string), nil //nolint:forcetypeassert // as it was stored
	}})
	t.Cleanup(func() { _ = c.Close() })
	d := w.over(c)
	r := ask("k")
	w.grant(d, r)
	var links atomic.Int64
	p.Hook(func(c faultproxy.Chunk) bool {
		links.Store(max(links.Load(), int64(c.Conn)))
		return false
	})
	w.renew(d, r)
	before := links.Load()

	for _, next := range []string{"two", "three"} { // each key's folder allows its own alone
		w.do(w.admin, zk.Create(d.dir(next), nil, allow(next), zk.Persistent))
		password.Store(next)
		w.eventually("the new password is used", func() bool {
			res, err := contend.Try(w.ctx, d, ask(next))
			if err != nil && d.Classify(err) != driver.ClassDenied {
				t.Fatal(err)
			}
			return res.Granted
		})
	}
	must(t, w.renew(d, r).Err)
	if links.Load() != before {
		t.Errorf("it made %d connections", links.Load()-before)
	}
}

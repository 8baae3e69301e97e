// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// prompt has sessions that attach at once.
func prompt(d *Driver) *Driver {
	d.sessions.gap = time.Millisecond
	return d
}

func (w *world) sessions() *Driver {
	w.Helper()
	return prompt(w.driver(&Options{Session: true}))
}

// newSessions returns a world, a driver with sessions in it, and another without.
func newSessions(t testing.TB) (w *world, d, other *Driver) {
	t.Helper()
	w = newWorld(t)
	return w, w.sessions(), w.driver(nil)
}

// attaches renews a lease, and waits until it is attached.
func (w *world) attaches(d *Driver, r contend.Owner) {
	w.Helper()
	w.renewed(d, r)
	w.until("it is attached", func() bool { return w.sessionOf(d, r) != "" })
}

// attached are leases of keys that d attached.
func (w *world) attached(d *Driver, keys ...string) (all []contend.Owner) {
	w.Helper()
	for _, key := range keys {
		r := ask(key)
		w.grant(d, r)
		w.attaches(d, r)
		all = append(all, r)
	}
	return all
}

// sessionOf is the session that d knows a lease to be attached to, or "".
func (w *world) sessionOf(d *Driver, r contend.Owner) string {
	w.Helper()
	s := d.sessions.of(r.Renewal())
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[r.Owner]; m != nil && m.id == s.id {
		return m.id
	}
	return ""
}

// pttl is how long Redis says that the lock lasts.
func (w *world) pttl(d *Driver, r contend.Owner) time.Duration {
	w.Helper()
	left, err := w.admin.PTTL(w.ctx, d.names(r.Key).lock).Result()
	w.succeeds(err)
	return left
}

// The suite passes where leases are attached as soon as they were renewed.
func TestSuiteWithSessions(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "sessions")
	drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
		server := testserver.Redis(t)
		admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = admin.Close() })
		return drivertest.Store{
			Open: func() driver.Driver {
				rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
				t.Cleanup(func() { _ = rdb.Close() })
				return prompt(New(rdb, &Options{Session: true}))
			},
			Leftovers: func() []string { return permanent(t, admin) },
		}
	}})
}

// One sign of life renews all that is attached, and others see how long it lasts.
func TestSessionRenewsAll(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
	all := make([]contend.Owner, 50)
	for i := range all {
		all[i] = ask(fmt.Sprint("k", i))
		w.grant(d, all[i])
	}
	for _, r := range all {
		w.attaches(d, r)
	}
	for _, r := range all {
		if left := w.pttl(d, r); left < longest-time.Minute {
			t.Fatalf("%s expires in %v", r.Key, left)
		}
	}
	w.renewed(d, all[0])
	id := w.sessionOf(d, all[0])
	w.do("PEXPIRE", sessionKey(id), 20_000)
	if info := w.inspect(other, "k0"); !info.Held || info.Left > 20*time.Second || info.Holder.Owner != all[0].Owner {
		t.Errorf("k0: %+v", info)
	}
	listed := w.list(other, "")
	if info := listed["k1"]; len(listed) != len(all) || !info.Held || info.Left > 20*time.Second {
		t.Errorf("listed are %d, and k1 is %+v", len(listed), info)
	}
	begun := time.Now()
	cost := w.cost(func() {
		w.renewed(d, all...)
	})
	if calls := w.calls(); cost-calls["ping"] > 4 { // the script, and three commands in it
		t.Errorf("50 leases cost %d commands: %v", cost, calls)
	}
	if left := w.admin.PTTL(w.ctx, sessionKey(id)).Val(); !lasts(left, all[0].TTL, begun) {
		t.Errorf("the session lasts for %v", left)
	}
	for _, r := range all {
		w.release(d, r)
	}
	if info := w.inspect(other, "k0"); info.Held {
		t.Errorf("after Release: %+v", info)
	}
	w.grant(other, ask("k1"))
}

// A lease ends with its session, as if it had expired: whoever asks first finds it so.
func TestSessionEnds(t *testing.T) {
	for _, first := range []string{"holder", "other", "inspection"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			w, d, other := newSessions(t)
			a, b := ask("k"), ask("k")
			fence := w.grant(d, a).Fence
			w.attaches(d, a)
			w.do("DEL", sessionKey(w.sessionOf(d, a)))
			switch first {
			case "holder":
				w.renewsNothing(d, a)
			case "inspection":
				if info := w.inspect(other, "k"); info.Held {
					t.Errorf("it is %+v", info)
				}
				if all := w.list(other, ""); len(all) != 0 {
					t.Errorf("listed is %+v", all)
				}
			}
			if res := w.grant(other, b); !res.Abandoned || res.Fence <= fence {
				t.Errorf("the next after %d has %+v", fence, res)
			}
			w.renewsNothing(d, a)
			c := ask("other") // what is new has a new session
			w.grant(d, c)
			w.attaches(d, c)
			w.renewed(other, b)
		})
	}
}

// Where a person made the session permanent, nobody takes what is attached.
func TestSessionIsPermanent(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
	a := w.attached(d, "k")[0]
	w.do("PERSIST", sessionKey(w.sessionOf(d, a)))
	w.refuse(other, ask("k"))
	w.tick()
	w.tick()
	w.refuse(other, ask("k"))
	w.renewed(d, a)
}

// A full server attaches nothing new, frees what is attached, and says of the rest what it is.
func TestSessionOnAFullServer(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
	a, b, deleted, late := ask("a"), ask("b"), ask("deleted"), ask("late")
	for _, r := range []contend.Owner{a, b, deleted} {
		w.grant(d, r)
		w.attaches(d, r)
	}
	w.grant(d, late)
	w.do("DEL", d.names("deleted").lock)
	off := w.full()
	defer off()
	w.renewed(d, late)
	w.renewed(d, a)
	w.refuse(other, ask("a"))
	w.renewed(d, a)
	w.release(d, a)
	b.End = driver.Unfinished
	w.release(d, b)
	deleted.End = driver.Unfinished
	w.releasesNothing(d, deleted)
	w.renewed(d, late)
	w.release(d, late)
	off()
	if res := w.grant(other, ask("b")); !res.Abandoned {
		t.Errorf("the next has %+v", res)
	}
}

// A lease of one session that has to be renewed by itself does not wait for the beat of another one.
func TestSessionsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
	a, b := ask("a"), ask("b")
	b.TTL = time.Minute
	for _, r := range []contend.Owner{a, b} {
		w.grant(d, r)
		w.attaches(d, r)
	}
	slow := d.sessions.of(b.Renewal())
	slow.mu.Lock()
	slow.next = &turn{done: make(chan struct{})} // one that never comes
	slow.mu.Unlock()
	w.refuse(other, ask("a"))
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	var first int
	contend.Renew(ctx, d, []contend.Owner{a, b}, func(i int, r driver.Renewal) {
		if first = i; r.Err != nil {
			t.Errorf("Renew: %v", r.Err)
		}
		cancel()
	})
	if first != 0 || ctx.Err() != context.Canceled {
		t.Errorf("the first is %d, then %v", first, ctx.Err())
	}
}

// A renewal that is asked for alone, as Lease.Extend does, has its beat at once.
func TestLoneRenewalDoesNotWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(&Options{Session: true})
	d.sessions.gap = time.Hour // for which the others wait
	a := ask("k")
	a.TTL = 10 * time.Hour
	w.grant(d, a)
	w.attaches(d, a)
	for range 5 {
		w.renewed(d, a)
	}
	if w.sessionOf(d, a) == "" {
		t.Error("it is not attached any more")
	}
}

// A server that stops holds up no call for longer than its context, and no Close; then all goes on.
func TestSessionOfAStoppedServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	patience := func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = time.Hour, time.Hour } // nothing else ends a request
	d := prompt(w.over(w.client(patience), &Options{Session: true}))
	both := w.attached(d, "a", "b")
	a, b := both[0], both[1]
	w.server.Stop()
	defer w.server.Cont()
	soon := func(what string, f func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(w.ctx, 300*time.Millisecond)
		defer cancel()
		over := make(chan struct{})
		go func() {
			defer close(over)
			f(ctx)
		}()
		select {
		case <-over:
		case <-w.ctx.Done():
			t.Fatalf("%s does not return", what)
		}
	}
	for range 3 {
		soon("Renew", func(ctx context.Context) {
			contend.Renew(ctx, d, []contend.Owner{a, b}, func(_ int, r driver.Renewal) {
				if r.Err == nil {
					t.Error("it was renewed")
				}
			})
		})
		soon("Try", func(ctx context.Context) { _, _ = contend.Try(ctx, d, ask("c")) })
	}
	soon("Release", func(ctx context.Context) { _ = contend.Release(ctx, d, b) })
	w.server.Cont()
	w.until("it is renewed", func() bool { return w.renew(d, a)[0] == nil })
	w.server.Stop()
	soon("Renew", func(ctx context.Context) { contend.Renew(ctx, d, []contend.Owner{a}, func(int, driver.Renewal) {}) })
	soon("Close", func(context.Context) { _ = d.Close() })
}

// After a restart nobody knows what is attached: leases are renewed by themselves, and then attached anew.
func TestSessionOfAnotherRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.sessions()
	a := w.attached(d, "k")[0]
	old := w.sessionOf(d, a)
	s := d.sessions.of(a.Renewal())
	s.mu.Lock()
	s.run = strings.Repeat("0", 40)
	s.mu.Unlock()
	b := ask("b")
	w.grant(d, b)
	w.renewed(d, b)
	w.until("the session is over", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.id == ""
	})
	w.attaches(d, b)
	w.renewed(d, a)
	w.attaches(d, a)
	for _, r := range []contend.Owner{a, b} {
		if id := w.sessionOf(d, r); id == old {
			t.Errorf("%s has the same session", r.Key)
		}
	}
}

// A session that would have to name too many leases ends, and all go on by themselves.
func TestSessionNamesTooMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.sessions()
	a := w.attached(d, "k")[0]
	old := w.sessionOf(d, a)
	name := func(n int64) {
		args := []any{"ZADD", sessionKey(old)}
		for i := range n {
			args = append(args, 0, fmt.Sprintf("%026d", i))
		}
		w.do(args...)
	}
	name(layout.Named - 1)
	w.renewed(d, a)
	if id := w.sessionOf(d, a); id != old {
		t.Fatal("it is another session")
	}
	w.until("they are forgotten", func() bool {
		w.renewed(d, a)
		return w.admin.ZCard(w.ctx, sessionKey(old)).Val() == 1
	})
	name(layout.Named)
	w.renewed(d, a)
	w.attaches(d, a)
	if id := w.sessionOf(d, a); id == old {
		t.Error("it is the same session")
	}
}

// Without an answer to a beat the renewals have none, and the next has.
func TestBeatWithoutAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.sessions()
	a := w.attached(d, "k")[0]
	w.do("ACL", "SETUSER", "default", "-zrange")
	if err := w.renew(d, a)[0]; err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew: %v", err)
	}
	w.do("ACL", "SETUSER", "default", "+zrange")
	id := w.sessionOf(d, a)
	w.renewed(d, a)
	if id == "" || w.sessionOf(d, a) != id {
		t.Error("it is not the same session")
	}
}

// Without the right to INFO leases are attached as with it.
func TestSessionWithoutInfo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	allow(w, w.admin, "bob", "-info")
	d := prompt(w.over(w.client(func(o *redis.Options) { o.Username, o.Password = "bob", "secret" }), &Options{Session: true}))
	a := w.attached(d, "k")[0]
	w.renewed(d, a)
	w.refuse(d, ask("k"))
	w.attaches(d, a)
}

// Where a session cannot work, New says so.
func TestSessionIsRefused(t *testing.T) {
	o := &Options{Session: true}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	defer cluster.Close()
	single := redis.NewClient(&redis.Options{})
	defer single.Close()
	for name, d := range map[string]interface{ Check() error }{"cluster": New(cluster, o), "node": NewNode(single, time.Minute, o)} {
		if err := d.Check(); !errors.As(err, new(*wire.ConfigError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"crypto/rand"
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

// attaches renews a lease until it is attached.
func (w *world) attaches(d *Driver, r contend.Owner) {
	w.Helper()
	w.renewed(d, r)
	w.until("it is attached", func() bool { return w.sessionOf(d, r) != "" })
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

// lasts is what Redis says of the lock.
func (w *world) pttl(d *Driver, r contend.Owner) time.Duration {
	w.Helper()
	left, err := w.admin.PTTL(w.ctx, d.names(r.Key).lock).Result()
	if err != nil {
		w.Fatal(err)
	}
	return left
}

// The suite passes where leases are attached as soon as they were renewed.
func TestSuiteWithSessions(t *testing.T) {
	t.Parallel()
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
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
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
		for i, err := range w.renew(d, all...) {
			if err != nil {
				t.Errorf("renewal %d: %v", i, err)
			}
		}
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
			w := newWorld(t)
			d, other := w.sessions(), w.driver(nil)
			a, b := ask("k"), ask("k")
			fence := w.grant(d, a).Fence
			w.attaches(d, a)
			w.do("DEL", sessionKey(w.sessionOf(d, a)))
			switch first {
			case "holder":
				if err := w.renew(d, a)[0]; !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("Renew: %v", err)
				}
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
			if err := w.renew(d, a)[0]; !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Renew: %v", err)
			}
			c := ask("other") // what is new has a new session
			w.grant(d, c)
			w.attaches(d, c)
			w.renewed(other, b)
		})
	}
}

// Whoever asks for an attached key has its lease renewed by itself, until nobody wants it any more.
func TestWhoWantsAnAttachedKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
	a, b := ask("k"), ask("k")
	w.grant(d, a)
	w.attaches(d, a)
	if res := w.refuse(other, b); res.Holder.Owner != a.Owner || res.Left <= 0 || res.Left > a.TTL || res.RetryIn <= 0 || res.RetryIn > a.TTL+time.Second {
		t.Errorf("refused with %+v", res)
	}
	if left := w.pttl(d, a); left > a.TTL {
		t.Errorf("it expires in %v", left)
	}
	w.do("PEXPIRE", d.names("k").lock, 1000)
	w.attaches(d, a) // the beat named it
	if left := w.pttl(d, a); left < longest-time.Minute {
		t.Errorf("it expires in %v", left)
	}

	hints := w.wait(other, b)
	w.do("PEXPIRE", d.names("k").lock, 5000)
	for range 3 {
		w.renewed(d, a)
	}
	if left := w.pttl(d, a); left < 5*time.Second || left > a.TTL {
		t.Errorf("with a waiter it expires in %v", left)
	}
	w.release(d, a)
	w.hint(hints)
	w.grant(other, queued(b))
}

// Two that want it, one after the other, with the same beat in between: each of them is named.
func TestAttachedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
	a := ask("k")
	w.grant(d, a)
	w.attaches(d, a)
	for range 3 {
		id := w.sessionOf(d, a)
		w.refuse(other, ask("k"))
		w.renewed(d, a) // named
		w.attaches(d, a)
		if err := w.admin.ZScore(w.ctx, sessionKey(id), a.Owner).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("it is still named: %v", err)
		}
		w.refuse(other, ask("k"))
		if n := w.admin.ZScore(w.ctx, sessionKey(id), a.Owner); n.Err() != nil {
			t.Fatalf("it is not named: %v", n.Err())
		}
		w.attaches(d, a)
	}
}

// A lease that is broken, or deleted by a person, is lost with the next renewal at the latest.
func TestAttachedLeaseIsTaken(t *testing.T) {
	for name, take := range map[string]func(w *world, other *Driver, a contend.Owner){
		"broken":      func(w *world, other *Driver, a contend.Owner) { w.release(other, broken(a)) },
		"DEL":         func(w *world, other *Driver, a contend.Owner) { w.do("DEL", other.names(a.Key).lock) },
		"overwritten": func(w *world, other *Driver, a contend.Owner) { w.do("SET", other.names(a.Key).lock, "somebody") },
		"FLUSHALL":    func(w *world, _ *Driver, _ contend.Owner) { w.do("FLUSHALL") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d, other := w.sessions(), w.driver(nil)
			losses := told(d)
			a := ask("k")
			fence := w.grant(d, a).Fence
			w.attaches(d, a)
			take(w, other, a)
			if name == "broken" {
				w.comes(losses, loss{a.Claim().ID(), fence})
			}
			if name == "DEL" || name == "overwritten" { // one beat in two looks at locks
				w.renew(d, a)
			}
			if err := w.renew(d, a)[0]; !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Renew: %v", err)
			}
		})
	}
}

// Another client may renew the lease, as whoever adopts it does, and convert it.
func TestAttachedLeaseElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
	a := ask("k")
	fence := w.grant(d, a).Fence
	w.attaches(d, a)
	begun := time.Now()
	w.renewed(other, a)
	if left := w.pttl(d, a); !lasts(left, a.TTL, begun) {
		t.Errorf("it expires in %v", left)
	}
	w.attaches(d, a)
	begun = time.Now()
	if res := w.grant(other, a); res.Fence != fence || res.TTL < a.TTL {
		t.Errorf("asked again: %+v", res)
	}
	if left := w.pttl(d, a); !lasts(left, a.TTL, begun) {
		t.Errorf("it expires in %v", left)
	}
	w.attaches(d, a)
	shared := w.convert(d, contend.Owner{Key: a.Key, Owner: a.Owner, Label: a.Label, TTL: a.TTL, Patience: a.Patience, Fence: fence})
	w.renewed(d, shared)
	reader := ask("k")
	reader.Mode = driver.Shared
	w.grant(other, reader)
}

// A request that attaches may come late, or its answer never: the lease is renewed by itself, and
// is over where the session is that it was attached to.
func TestLateAttach(t *testing.T) {
	for _, over := range []bool{false, true} {
		t.Run(fmt.Sprint("over=", over), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.driver(nil)
			a := ask("k")
			w.grant(d, a)
			s := &session{d: d, ttl: a.TTL}
			id := rand.Text()
			w.together(d, s.attachCall(id, true, []*member{{Claim: a.Claim()}}))
			if left := w.pttl(d, a); left < longest-time.Minute {
				t.Fatalf("it expires in %v", left)
			}
			var want error
			if over {
				w.do("DEL", sessionKey(id))
				want = driver.ErrNotHeld
			}
			if err := w.renew(d, a)[0]; !errors.Is(err, want) {
				t.Errorf("Renew: %v, want %v", err, want)
			}
			if left := w.pttl(d, a); left > a.TTL {
				t.Errorf("it expires in %v", left)
			}
			if !over {
				w.release(d, a)
			}
			w.together(d, s.attachCall(id, false, []*member{{Claim: a.Claim()}}))
			w.grant(w.driver(nil), ask("k"))
		})
	}
}

// What is attached ends no earlier than its session, which attaching prolongs.
func TestAttachProlongsTheSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(nil)
	a, b := ask("a"), ask("b")
	w.grant(d, a)
	w.grant(d, b)
	s := &session{d: d, ttl: a.TTL}
	id := rand.Text()
	w.together(d, s.attachCall(id, true, []*member{{Claim: a.Claim()}}))
	w.do("PEXPIRE", sessionKey(id), 5000)
	begun := time.Now()
	w.together(d, s.attachCall(id, false, []*member{{Claim: b.Claim()}}))
	if left := w.admin.PTTL(w.ctx, sessionKey(id)).Val(); !lasts(left, a.TTL, begun) {
		t.Errorf("the session lasts for %v", left)
	}
}

// That a previous holder did not finish is not forgotten.
func TestAttachedLeaseKeepsTheMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
	a, b := ask("k"), ask("k")
	w.grant(d, a)
	w.release(d, broken(a))
	if res := w.grant(d, b); !res.Abandoned {
		t.Fatalf("granted is %+v", res)
	}
	w.attaches(d, b)
	w.refuse(other, ask("k"))
	w.attaches(d, b)
	b.End = driver.Unused
	w.release(d, b)
	if res := w.grant(other, ask("k")); !res.Abandoned {
		t.Errorf("the next has %+v", res)
	}
}

// An answer to what attaches counts only if the lease was not renewed by itself since, which makes it an ordinary one.
func TestAttachedTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.sessions()
	a := ask("k")
	w.grant(d, a)
	s := d.sessions.of(a.Renewal())
	s.mu.Lock()
	m := &member{Claim: a.Claim()}
	s.id, s.members[a.Owner] = rand.Text(), m
	id := s.id
	s.mu.Unlock()
	reply := w.together(d, s.attachCall(id, true, []*member{m}))[0].Reply
	w.renewed(d, a)
	s.mu.Lock()
	s.attached(id, true, []*member{m}, []int{0}, wire.NewReply(reply), nil)
	if m.id != "" {
		t.Error("it counts")
	}
	s.mu.Unlock()
	w.attaches(d, a)
}

// Leases that were released before they could be attached leave nothing to do.
func TestReleasedBeforeItIsAttached(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.sessions()
	a := ask("k")
	w.grant(d, a)
	s := d.sessions.of(a.Renewal())
	s.mu.Lock()
	for range 2 * perAttach {
		s.fresh = append(s.fresh, &member{Claim: ask("gone").Claim()})
	}
	s.mu.Unlock()
	if calls := w.cost(s.attachAll); calls != 0 {
		t.Errorf("it takes %d commands", calls)
	}
	s.mu.Lock()
	if s.id != "" || len(s.fresh) != 0 {
		t.Errorf("the session is %q, and %d are left", s.id, len(s.fresh))
	}
	s.mu.Unlock()
	w.attaches(d, a)
}

// What is to be attached and is not fit for it stays as it is.
func TestNotAttached(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.driver(nil), w.driver(nil)
	id := rand.Text()
	attach := func(begins bool, r contend.Owner) any {
		t.Helper()
		s := &session{d: d, ttl: 30 * time.Second}
		return w.together(d, s.attachCall(id, begins, []*member{{Claim: r.Claim()}}))[0].Reply
	}
	stays := func(what string, r contend.Owner, reply any) {
		t.Helper()
		if f, ok := reply.([]any); !ok || len(f) == 2 && f[1] != int64(0) || len(f) > 2 {
			t.Errorf("%s: %v", what, reply)
		}
		if g := w.admin.Get(w.ctx, d.names(r.Key).grant).Val(); strings.Contains(g, "@") {
			t.Errorf("%s: its grant is %q", what, g)
		}
		if left := w.pttl(d, r); left > time.Hour {
			t.Errorf("%s: it expires in %v", what, left)
		}
	}
	a := ask("a")
	w.grant(d, a)
	stays("no session", a, attach(false, a))
	stays("not held", ask("b"), attach(true, ask("b")))
	stays("another's", a, attach(false, ask("a")))
	w.wait(other, ask("a"))
	stays("waited for", a, attach(false, a))
	long := ask("long")
	long.TTL = 2 * time.Minute
	w.grant(d, long)
	stays("longer than the session", long, attach(false, long))
	asked := ask("asked")
	w.grant(d, asked)
	w.asks(d, asked)
	stays("its holder is to be told", asked, attach(false, asked))
	reader := ask("reader")
	reader.Mode = driver.Shared
	w.grant(d, reader)
	stays("shared", reader, attach(false, reader))
}

// A lease whose Release had no answer, or that nobody renews any more, does not last as long as the session.
func TestAttachedLeaseIsForgotten(t *testing.T) {
	for _, how := range []string{"released", "not renewed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d, other := w.sessions(), w.driver(nil)
			a, b := ask("a"), ask("b")
			for _, r := range []contend.Owner{a, b} {
				w.grant(d, r)
				w.attaches(d, r)
			}
			s := d.sessions.of(a.Renewal())
			if how == "released" {
				d.sessions.released(a.Owner, errors.New("no answer"))
			}
			s.mu.Lock()
			s.members[a.Owner].until = time.Now().Add(-time.Millisecond)
			s.members[a.Owner].asked = time.Now().Add(-lateRequest)
			s.mu.Unlock()
			s.sweep()
			if how == "not renewed" {
				if left := w.pttl(d, a); left > a.TTL {
					t.Errorf("it expires in %v", left)
				}
				w.do("PEXPIRE", d.names("a").lock, 1)
				w.until("it expires", func() bool { return w.pttl(d, a) < 0 })
			}
			if res := w.grant(other, ask("a")); !res.Abandoned {
				t.Errorf("the next has %+v", res)
			}
			w.renewed(d, b)
			if id := w.sessionOf(d, b); id == "" {
				t.Error("the other is not attached any more")
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.members[a.Owner] != nil {
				t.Error("it is still a member")
			}
		})
	}
}

// A lease that its holder renews in another way than with its session is still its own: with another TTL, by another
// client, shared, or to be told who waits.
func TestSessionLeavesOthersAlone(t *testing.T) {
	for name, renews := range map[string]func(w *world, d, other *Driver, a contend.Owner) (*Driver, contend.Owner){
		"longer": func(_ *world, d, _ *Driver, a contend.Owner) (*Driver, contend.Owner) {
			a.TTL *= 2
			return d, a
		},
		"shorter": func(w *world, d, _ *Driver, a contend.Owner) (*Driver, contend.Owner) {
			w.do("PEXPIRE", sessionKey(w.sessionOf(d, a)), 5000)
			a.TTL /= 2
			return d, a
		},
		"wanted": func(_ *world, d, _ *Driver, a contend.Owner) (*Driver, contend.Owner) {
			a.Wanted = func() {}
			return d, a
		},
		"shared": func(w *world, d, _ *Driver, a contend.Owner) (*Driver, contend.Owner) { return d, w.convert(d, a) },
		"adopted": func(_ *world, _, other *Driver, a contend.Owner) (*Driver, contend.Owner) {
			return other, a
		},
		"adopted, with a session": func(w *world, _, _ *Driver, a contend.Owner) (*Driver, contend.Owner) {
			return w.sessions(), a
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d, other := w.sessions(), w.driver(nil)
			a, b := ask("a"), ask("b")
			for _, r := range []contend.Owner{a, b} {
				w.grant(d, r)
				w.attaches(d, r)
			}
			s := d.sessions.of(a.Renewal())
			by, a := renews(w, d, other, a)
			w.renewed(by, a)
			if of := by.sessions; of != nil && of.of(a.Renewal()) != nil {
				w.attaches(by, a)
			}
			s.mu.Lock()
			s.members[a.Owner].until = time.Now().Add(-time.Millisecond)
			s.mu.Unlock()
			s.sweep()
			w.renewed(by, a)
			w.refuse(other, ask("a"))
		})
	}
}

// Where a late request may still attach a lease that is not renewed any more, its session goes on to look after it.
func TestAttachedAfterItWasForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.sessions()
	a, b := ask("a"), ask("b")
	for _, r := range []contend.Owner{a, b} {
		w.grant(d, r)
		w.attaches(d, r)
	}
	s := d.sessions.of(a.Renewal())
	s.mu.Lock()
	m, id := s.members[a.Owner], s.id
	m.until = time.Now().Add(-time.Millisecond)
	s.mu.Unlock()
	s.sweep()
	w.together(d, s.attachCall(id, false, []*member{{Claim: a.Claim()}}))
	if left := w.pttl(d, a); left < longest-time.Minute {
		t.Fatalf("it expires in %v", left)
	}
	s.sweep()
	if left := w.pttl(d, a); left > a.TTL {
		t.Errorf("it expires in %v", left)
	}
}

// An owner whose Release had no answer may ask again: what it then has is its own.
func TestOwnerAsksAgainAfterItsRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
	a, b := ask("a"), ask("b")
	for _, r := range []contend.Owner{a, b} {
		w.grant(d, r)
		w.attaches(d, r)
	}
	a.Settled = true
	w.release(other, a) // it was carried out
	d.sessions.released(a.Owner, errors.New("no answer"))
	w.grant(d, a)
	d.sessions.of(a.Renewal()).sweep()
	w.renewed(other, a)
}

// Who takes a key whose lock was deleted has its former holder hear of it with the next beat.
func TestHolderHearsWhoTookADeletedLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
	all := make([]contend.Owner, 20) // of which a beat looks at one
	for i := range all {
		all[i] = ask(fmt.Sprint("k", i))
		w.grant(d, all[i])
		w.attaches(d, all[i])
	}
	w.do("DEL", other.names("k7").lock)
	w.grant(other, ask("k7"))
	if err := w.renew(d, all[7])[0]; !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew: %v", err)
	}
}

// What a person made permanent stays so, whoever asks for it.
func TestAttachedLeaseIsPermanent(t *testing.T) {
	for _, over := range []bool{false, true} {
		t.Run(fmt.Sprint("over=", over), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d, other := w.sessions(), w.driver(nil)
			a := ask("k")
			w.grant(d, a)
			w.attaches(d, a)
			w.do("PERSIST", d.names("k").lock)
			if over {
				w.do("DEL", sessionKey(w.sessionOf(d, a)))
			}
			if info := w.inspect(other, "k"); !info.Held || info.Left != wire.Forever {
				t.Errorf("it is %+v", info)
			}
			if info := w.list(other, "")["k"]; !info.Held || info.Left != wire.Forever {
				t.Errorf("listed is %+v", info)
			}
			w.refuse(other, ask("k"))
			w.renewed(d, a)
			if left := w.admin.PTTL(w.ctx, d.names("k").lock).Val(); left != wire.Forever {
				t.Errorf("it expires in %v", left)
			}
			w.release(d, a)
			w.grant(other, ask("k"))
		})
	}
}

// Where a person made the session permanent, nobody takes what is attached.
func TestSessionIsPermanent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
	a := ask("k")
	w.grant(d, a)
	w.attaches(d, a)
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
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
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
	if err := contend.Release(w.ctx, d, deleted); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release of what was deleted: %v", err)
	}
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
	w := newWorld(t)
	d, other := w.sessions(), w.driver(nil)
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
	a := ask("k")
	w.grant(d, a)
	w.attaches(d, a)
	begun := time.Now()
	for range 5 {
		w.renewed(d, a)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("they took %v", took)
	}
	if w.sessionOf(d, a) == "" {
		t.Error("it is not attached any more")
	}
}

// A server that stops holds up no call for longer than its context, and no Close; then all goes on.
func TestSessionOfAStoppedServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.sessions()
	a, b := ask("a"), ask("b")
	for _, r := range []contend.Owner{a, b} {
		w.grant(d, r)
		w.attaches(d, r)
	}
	w.server.Stop()
	defer w.server.Cont()
	soon := func(what string, f func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(w.ctx, 300*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if f(ctx); time.Since(begun) > 2*time.Second {
			t.Errorf("%s took %v", what, time.Since(begun))
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
	a := ask("k")
	w.grant(d, a)
	w.attaches(d, a)
	old := w.sessionOf(d, a)
	s := d.sessions.of(a.Renewal())
	s.mu.Lock()
	s.run = strings.Repeat("0", 40)
	s.mu.Unlock()
	w.renewed(d, a)
	w.renewed(d, a) // one beat in two asks
	w.attaches(d, a)
	if id := w.sessionOf(d, a); id == old {
		t.Error("it is the same session")
	}
}

// A session that would have to name too many leases ends, and all go on by themselves.
func TestSessionNamesTooMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.sessions()
	a := ask("k")
	w.grant(d, a)
	w.attaches(d, a)
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
	a := ask("k")
	w.grant(d, a)
	w.attaches(d, a)
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
	a := ask("k")
	w.grant(d, a)
	w.attaches(d, a)
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

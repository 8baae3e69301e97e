// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// Whoever asks for an attached key has its lease renewed by itself, until nobody wants it any more.
func TestWhoWantsAnAttachedKey(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
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
	w, d, other := newSessions(t)
	a := w.attached(d, "k")[0]
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
			w, d, other := newSessions(t)
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
			w.renewsNothing(d, a)
		})
	}
}

// Another client may renew the lease, as whoever adopts it does, and convert it.
func TestAttachedLeaseElsewhere(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
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
			w, d := newPlain(t)
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

// What is attached ends no earlier than its session, which attaching prolongs, and with it what was attached before.
func TestAttachProlongsTheSession(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
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
	w.do("PEXPIRE", d.names("a").lock, 5000)
	w.do("PEXPIRE", d.names("a").grant, 5000)
	w.together(d, s.attachCall(id, false, []*member{{Claim: a.Claim()}}))
	left, record := w.pttl(d, a), w.admin.PTTL(w.ctx, d.names("a").grant).Val()
	if left < longest-time.Minute || record <= left {
		t.Errorf("attached again it expires in %v, its grant in %v", left, record)
	}
}

// That a previous holder did not finish is not forgotten.
func TestAttachedLeaseKeepsTheMark(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
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

// So does what an earlier answer said, once it was renewed by itself.
func TestRenewalByItselfDetaches(t *testing.T) {
	t.Parallel()
	a := ask("k")
	m := &member{Claim: a.Claim(), id: "some"}
	s := &session{ttl: a.TTL, wake: make(chan struct{}, 1), members: map[string]*member{a.Owner: m}, id: "some"}
	if next, _, _ := s.join([]driver.RenewRequest{a.Renewal()}, []int{0}); next == nil {
		t.Fatal("it is not attached")
	}
	s.attach(a.Claim())
	if m.id != "" || m.alone != 1 || len(s.fresh) != 1 {
		t.Errorf("it is attached to %q, was renewed by itself %d times, and %d are to be attached", m.id, m.alone, len(s.fresh))
	}
}

// A lease is not attached while it is being renewed by itself: that renewal would have to undo it.
func TestNotAttachedDuringARenewal(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	a := ask("k")
	w.grant(d, a)
	s := &session{d: d, ttl: a.TTL, wake: make(chan struct{}, 1), members: map[string]*member{}}
	s.attach(a.Claim())
	if next, _, _ := s.join([]driver.RenewRequest{a.Renewal()}, []int{0}); next != nil {
		t.Fatal("it waits for a beat")
	}
	if calls := w.cost(s.attachAll); calls != 0 {
		t.Errorf("it takes %d commands", calls)
	}
	for range 3 {
		s.attach(a.Claim()) // the answer
		if len(s.fresh) != 1 {
			t.Fatalf("%d are to be attached", len(s.fresh))
		}
		s.join([]driver.RenewRequest{a.Renewal()}, []int{0})
	}
	s.attach(a.Claim())
	s.attachAll()
	if m := s.members[a.Owner]; m.id == "" || m.id != s.id {
		t.Errorf("it is attached to %q, not to %q", m.id, s.id)
	}
}

// What ends first is awaited first: a long lease's beat comes late, and short ones do not wait for it.
func TestShortLeasesAreAwaitedFirst(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	d := New(rdb, &Options{Session: true})
	var rs []driver.RenewRequest
	var all []int
	for i := range 8 {
		a := ask(fmt.Sprint("k", i))
		a.TTL = time.Hour - time.Duration(i)*time.Minute
		id := fmt.Sprint("session ", i)
		s := &session{d: d, ttl: a.TTL, id: id, wake: make(chan struct{}, 1), members: map[string]*member{a.Owner: {Claim: a.Claim(), id: id}}}
		d.sessions.all[a.TTL] = s
		rs, all = append(rs, a.Renewal()), append(all, i)
	}
	_, beats := d.join(rs, all)
	if len(beats) != len(rs) || !slices.IsSortedFunc(beats, func(a, b joined) int { return cmp.Compare(a.s.ttl, b.s.ttl) }) {
		t.Errorf("%d beats, in another order", len(beats))
	}
}

// A beat comes before the core asks again for a renewal that waits for it, after a sixth of the TTL.
func TestBeatComesBeforeARepeat(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	d := New(rdb, &Options{Session: true})
	for _, ttl := range []time.Duration{time.Second, 30 * time.Second, time.Hour} {
		s := &session{d: d, ttl: ttl}
		if gap := s.gap(); gap >= ttl/6 {
			t.Errorf("of a TTL of %v it comes after %v", ttl, gap)
		}
	}
}

// A beat that was answered counts, also when the time for the renewal is over by the time that somebody looks.
func TestAnsweredBeatCounts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	beat := &turn{done: make(chan struct{})}
	if beat.over(ctx, t.Context()) || beat.over(t.Context(), ctx) {
		t.Error("without an answer it counts")
	}
	close(beat.done)
	for range 100 {
		if !beat.over(ctx, ctx) {
			t.Fatal("it does not count")
		}
	}
}

// A holder whose lease is attached, and that then asks who waits, is told.
func TestAttachedHolderAsks(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
	a := w.attached(d, "k")[0]
	w.listens(d)
	told := w.asks(d, a)
	w.wait(other, ask("k"))
	w.heard(told)
}

// What is to be attached and is not fit for it stays as it is.
func TestNotAttached(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
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
			w, d, other := newSessions(t)
			both := w.attached(d, "a", "b")
			a, b := both[0], both[1]
			s := d.sessions.of(a.Renewal())
			if how == "released" {
				d.sessions.released(a.Owner, false)
			}
			s.mu.Lock()
			s.members[a.Owner].until = time.Now().Add(-time.Millisecond)
			s.members[a.Owner].asked = time.Now().Add(-driver.LateRequest)
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
			w, d, other := newSessions(t)
			both := w.attached(d, "a", "b")
			a := both[0]
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
	both := w.attached(d, "a", "b")
	a := both[0]
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
	w, d, other := newSessions(t)
	both := w.attached(d, "a", "b")
	a := both[0]
	a.Settled = true
	w.release(other, a) // it was carried out
	d.sessions.released(a.Owner, false)
	w.grant(d, a)
	d.sessions.of(a.Renewal()).sweep()
	w.renewed(other, a)
}

// Who takes a key whose lock was deleted has its former holder hear of it with the next beat.
func TestHolderHearsWhoTookADeletedLock(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
	all := make([]contend.Owner, 20) // of which a beat looks at one
	for i := range all {
		all[i] = ask(fmt.Sprint("k", i))
		w.grant(d, all[i])
		w.attaches(d, all[i])
	}
	w.do("DEL", other.names("k7").lock)
	w.grant(other, ask("k7"))
	w.renewsNothing(d, all[7])
}

// What a person made permanent stays so, whoever asks for it.
func TestAttachedLeaseIsPermanent(t *testing.T) {
	for _, over := range []bool{false, true} {
		t.Run(fmt.Sprint("over=", over), func(t *testing.T) {
			t.Parallel()
			w, d, other := newSessions(t)
			a := w.attached(d, "k")[0]
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
			s := d.sessions.of(a.Renewal())
			w.together(d, s.attachCall(s.id, false, []*member{{Claim: a.Claim()}})) // as after half of its expiry
			if left := w.admin.PTTL(w.ctx, d.names("k").lock).Val(); left != wire.Forever {
				t.Errorf("attached again it expires in %v", left)
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

// Without the grant that names the session nobody else knows of it: what is attached stays as if it were held, is found, and may be
// taken away.
func TestGrantOfAnAttachedLeaseIsLost(t *testing.T) {
	t.Parallel()
	w, d, other := newSessions(t)
	a := w.attached(d, "k")[0]
	w.do("DEL", d.names("k").grant)
	w.refuse(other, ask("k")) // it may be held: its session goes on
	w.renewed(d, a)
	w.do("DEL", sessionKey(w.sessionOf(d, a)))
	w.refuse(other, ask("k"))
	if info := w.inspect(other, "k"); info.Holder.Owner != a.Owner || info.Left < longest-time.Minute {
		t.Errorf("it is %+v", info)
	}
	var held []string
	for l, err := range other.ListLeftovers(w.ctx, "", func(i driver.Info) { held = append(held, i.Holder.Owner) }) {
		t.Errorf("left over is %+v, %v", l, err)
	}
	if !slices.Equal(held, []string{a.Owner}) {
		t.Errorf("held is %v", held)
	}
	w.release(other, a) // as hasp break
	w.grant(other, ask("k"))
}

// A lease that can't be attached again after half of its expiry is renewed by itself: else it would be over with its expiry, unnoticed.
func TestNotAttachedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.sessions()
	a := w.attached(d, "k")[0]
	w.do("DEL", d.names("k").grant)
	s := d.sessions.of(a.Renewal())
	s.mu.Lock()
	s.members[a.Owner].attached = time.Now().Add(-longest/2 - time.Second)
	s.mu.Unlock()
	s.sweep()
	w.until("it is asked for again", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.members[a.Owner].queued
	})
	w.do("PEXPIRE", d.names("k").lock, 10_000)
	w.until("a renewal prolongs its lock", func() bool {
		w.renewed(d, a)
		return w.pttl(d, a) > 20*time.Second
	})
}

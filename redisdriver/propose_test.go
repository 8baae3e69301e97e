// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

func proposing(key string, fence uint64) contend.Owner {
	r := ask(key)
	r.Fence = fence
	return r
}

// tooLow must be refused with FenceTooLow, and returns the floor.
func (w *world) tooLow(d *Driver, r contend.Owner) uint64 {
	w.Helper()
	res := w.refuse(d, r)
	if res.Why != voting.FenceTooLow || res.Fence == 0 || res.Run == "" {
		w.Errorf("proposed %d: %+v, want FenceTooLow", r.Fence, res)
	}
	return res.Fence
}

// mark sets the proposals' mark: its fences, and when it was turned last.
func (w *world) mark(old, mid, cur, at uint64) {
	w.Helper()
	w.do("SET", proposedKey, fmt.Sprintf("%016d %016d %016d %016d", old, mid, cur, at), "PX", 3600000)
}

// What a key was granted last stays beside it when it is free, for a while, and
// exactly; nothing stays for good.
func TestProposedFenceIsRemembered(t *testing.T) {
	t.Parallel()
	for _, maxTTL := range []time.Duration{50 * time.Second, time.Minute, time.Hour} {
		w := newWorld(t)
		d := w.nodeOver(w.client(nil), maxTTL)
		if err := (&Node{d}).Admit(w.ctx, w.record(d), maxTTL); err != nil {
			t.Fatal(err)
		}
		lead := voting.MaxFenceSkew - time.Second
		for i := range 200 {
			begun, settled := time.Now(), i%2 == 0
			a := proposing(fmt.Sprint("k", i), w.micros()+uint64(lead.Microseconds()))
			a.TTL, a.Settled = 50*time.Second, settled
			if i%5 == 0 {
				a.Fence = 0 // what was minted is remembered as well
			}
			fence := w.grant(d, a).Fence
			w.release(d, a)
			n := d.names(a.Key)
			text := w.admin.Get(w.ctx, n.grant).Val()
			if len(text) != 59 || text[58] != 'F' || text[27:43] != fmt.Sprintf("%016d", fence) {
				t.Fatalf("a free key keeps %q for %d", text, fence)
			}
			least := max(time.Minute, maxTTL)
			if a.Fence != 0 {
				least += lead - 500*time.Millisecond
			}
			if left := w.admin.PTTL(w.ctx, n.grant).Val(); left < least-time.Since(begun)-time.Second || left > least+time.Minute {
				t.Fatalf("it is kept for %v, want about %v", left, least)
			}
			if info := w.inspect(d, a.Key); info.Held || info.Fence != 0 {
				t.Fatalf("Inspect says %+v", info)
			}
		}
		for info, err := range d.List(w.ctx, "") {
			t.Errorf("List shows %+v, %v", info, err)
		}
		if keys := permanent(t, w.admin); len(keys) != 1 || keys[0] != recordKey {
			t.Errorf("these never expire: %q", keys)
		}
	}
}

// The general floor is old: it follows when the mark is turned, and the mark is
// no smaller than what was granted.
func TestProposalsMarkTurns(t *testing.T) {
	w, d := newVoting(t)
	const second = 1_000_000
	now := w.micros()
	old, mid, cur := now-300*second, now-200*second, now-100*second
	for _, c := range []struct {
		name  string
		at    uint64 // when it was turned
		floor uint64
	}{
		{"just now", now - 10*second, old},
		{"a while ago", now - 30*second, mid},
		{"long ago", now - 45*second, cur},
		{"in days to come", now + 100*second, mid},
	} {
		w.mark(old, mid, cur, c.at)
		if got := w.tooLow(d, proposing("k", c.floor)); got != c.floor {
			t.Errorf("turned %s: the floor is %d, want %d", c.name, got, c.floor)
		}
		key := "granted " + c.name
		w.grant(d, proposing(key, c.floor+1))
		var o, m, u, at uint64
		text := w.admin.Get(w.ctx, proposedKey).Val()
		if _, err := fmt.Sscanf(text, "%16d %16d %16d %16d", &o, &m, &u, &at); err != nil || len(text) != 67 {
			t.Fatalf("the mark is %q: %v", text, err)
		}
		if o != c.floor || u < max(cur, c.floor+1) {
			t.Errorf("turned %s: the mark is %q, the floor was %d", c.name, text, c.floor)
		}
		if turned := c.floor != old; turned != (at >= now && at < now+60*second) || turned && m != cur || !turned && m != mid {
			t.Errorf("turned %s: the mark is %q", c.name, text)
		}
	}
	w.do("DEL", proposedKey) // all is forgotten: the clock counts
	if got := w.tooLow(d, proposing("other", now)); got < now {
		t.Errorf("without a mark the floor is %d, at %d", got, now)
	}
}

// The mark is moved ahead, so that it need not be moved for each proposal, and
// before the grant; it outlasts its fences by hours.
func TestProposalsMarkCovers(t *testing.T) {
	w, d := newVoting(t)
	w.do("CONFIG", "RESETSTAT")
	var last uint64
	for i := range 100 {
		last = w.micros()
		w.grant(d, proposing(fmt.Sprint(i), last))
	}
	if n := w.calls()["set"]; n > 200+100/10 {
		t.Errorf("SET was called %d times for 100 grants", n)
	}
	cur := w.admin.Get(w.ctx, proposedKey).Val()[34:50]
	failIf(t, cur < fmt.Sprintf("%016d", last), "the mark is %s, the fence was %d", cur, last)
	if left := w.admin.PTTL(w.ctx, proposedKey).Val(); left < 12*time.Hour-time.Minute || left > 13*time.Hour {
		t.Errorf("the mark goes in %v", left)
	}
	const hour = uint64(time.Hour / time.Microsecond)
	w.mark(last+5*hour, last+5*hour, last+5*hour, w.micros()) // as after a clock that was set back
	w.grant(d, proposing("ahead", last+5*hour+1))
	if left := w.admin.PTTL(w.ctx, proposedKey).Val(); left < 17*time.Hour-time.Minute || left > 18*time.Hour {
		t.Errorf("ahead by 5 hours the mark goes in %v", left)
	}
	if left := w.admin.PTTL(w.ctx, d.names("ahead").grant).Val(); left < 5*time.Hour {
		t.Errorf("ahead by 5 hours the fence is kept for %v", left)
	}
}

// A proposal may be a little above the clock, or above what the node knows.
func TestProposalTooFarAhead(t *testing.T) {
	w, d := newVoting(t)
	const slack = 60_000_000 // what may pass between two readings of a clock
	lead := uint64(voting.MaxFenceSkew.Microseconds())
	w.grant(d, proposing("k", w.micros()+lead))
	for _, fence := range []uint64{1 << 63, maxFence, maxFence + 1, 1<<64 - 1} {
		w.tooLow(d, proposing("new", fence))
	}
	top := w.micros() + 10*slack
	w.mark(top, top, top, w.micros())
	w.tooLow(d, proposing("other", top+1<<20+1))
	w.grant(d, proposing("other", top+1<<20))
}

// Minted and proposed fences of a key rise together, whoever of the two kinds
// of driver comes, and over a handoff between them.
func TestMintedAndProposed(t *testing.T) {
	w := newWorld(t)
	d, old := w.node(), w.driver(nil)
	w.admit(d)
	ahead := uint64(voting.MaxFenceSkew.Microseconds()) - 500_000
	var last uint64
	rises := func(fence uint64) {
		t.Helper()
		failIf(t, fence <= last, "the fence is %d after %d", fence, last)
		last = fence
	}
	for i, minter := range []*Driver{old, d, old, d} {
		a := proposing("k", max(w.micros()+ahead, last+1))
		a.Settled = i%2 == 0
		rises(w.grant(d, a).Fence)
		w.release(d, a)
		b := ask("k")
		rises(w.grant(minter, b).Fence)
		if minter == d {
			w.release(d, b)
			w.tooLow(d, proposing("k", last))
			continue
		}
		c := proposing("k", 1)
		w.on(d).wait(c).renew(queued(c)).on(old).release(b) // to a waiter that proposes
		if info := w.inspect(old, "k"); info.Holder.Owner != c.Owner || info.Fence != 0 {
			t.Errorf("handed over: %+v", info)
		}
		w.tooLow(d, func() contend.Owner { c.Fence = last; return c }())
		c.Fence = last + 1
		rises(w.grant(d, c).Fence)
		e := ask("k")
		w.on(old).wait(e).on(d).release(c) // to one that does not
		rises(w.grant(old, e).Fence)
		w.release(old, e)
	}
	expired := proposing("x", w.micros()+ahead)
	expired.TTL = minTTL
	w.grant(d, expired)
	w.until("it ends", func() bool { return !w.inspect(d, "x").Held })
	if res := w.grant(old, ask("x")); res.Fence <= expired.Fence || !res.Abandoned {
		t.Errorf("after %d, which was not released: %+v", expired.Fence, res)
	}
}

// A key that is handed to one who proposes keeps the largest fence, also when
// the claim lapses, and gives the place back as it was.
func TestClaimOfAProposalExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := hasty(w.node())
	w.admit(d)
	a, b := proposing("k", w.micros()+1_000_000), proposing("k", 1)
	b.TTL = 20 * time.Millisecond // and so is the claim time
	w.on(d).grant(a).join(b)      // polls
	place := w.admin.HGet(w.ctx, d.names("k").places, b.Owner).Val()
	w.release(d, a)
	grant := w.admin.Get(w.ctx, d.names("k").grant).Val()
	failIf(t, grant[27:43] != fmt.Sprint(a.Fence) || grant[58] != 'C', "handed over: %q", grant)
	w.until("it lapses", func() bool { return w.admin.Exists(w.ctx, "lock:k").Val() == 0 })
	low := proposing("k", a.Fence)
	w.refuse(d, low) // b has its place again, and is passed over or handed the key
	again := strings.Replace(w.admin.HGet(w.ctx, d.names("k").places, b.Owner).Val(), "!", "", 1)
	if text := w.admin.Get(w.ctx, d.names("k").grant).Val(); again != place && (text[58] != 'C' || !strings.Contains(text, place)) {
		t.Errorf("its place was %q, is %q; the grant is %q", place, again, text)
	} else if text[27:43] != fmt.Sprint(a.Fence) {
		t.Errorf("the fence %d became %q", a.Fence, text)
	}
	w.release(d, b)
	if floor := w.tooLow(d, low); floor != a.Fence {
		t.Errorf("the floor is %d after %d", floor, a.Fence)
	}
	w.grant(d, proposing("k", a.Fence+1))
}

// Requests of all kinds in one script: one look at the record, one at the mark.
func TestNodeBatch(t *testing.T) {
	w, d := newVoting(t)
	now := w.micros()
	var rs []contend.Owner
	for i := range 8 {
		rs = append(rs, proposing(fmt.Sprint("k", i), now+uint64(i)))
	}
	claims, raised, restored, many := rs[0], rs[1], proposing("lost", now), proposing("many", now+100)
	claims.Fence++ // a standing lease answers with what it has
	raised.Fence, raised.Raise = now+50, true
	restored.Fence, restored.Restore = now-10, true
	many.Fences = 5
	rs = append(rs, claims, raised, restored, many, proposing("k2", now+1000), queued(proposing("k2", now+1000)),
		proposing("low", 1), ask("minted"), proposing("k3", now+1000), proposing("late", now+200))
	calls := tries(d, rs...)
	settled := rs[4]
	settled.Settled = true
	calls = append(calls, d.releaseCall(settled.Withdrawal()), d.releaseCall(rs[5].Withdrawal()), d.releaseCall(rs[5].Withdrawal()), d.releaseCall(rs[2].Withdrawal()))
	calls = append(calls, tries(d, proposing("k4", now+4), proposing("k4", now+300_000_000), rs[5], queued(ask("k5")), ask("k6"))...)
	for len(calls) < wire.ScriptCalls {
		calls = append(calls, tries(d, proposing(fmt.Sprint("more", len(calls)), now))...)
	}
	w.do("CONFIG", "RESETSTAT")
	w.together(d, calls...)
	if n := w.calls(); n["evalsha"] != 1 || n["info"] != 1 || n["time"] != 1 {
		t.Errorf("%d scripts, %d times INFO, %d times TIME", n["evalsha"], n["info"], n["time"])
	}
	var got []string
	for i, c := range calls {
		stopIf(t, c.Err != nil, "request %d: %v", i, c.Err)
		if n, ok := c.Reply.(int64); ok {
			got = append(got, fmt.Sprint(n))
			continue
		}
		a, err := parseTry(c.Reply)
		switch {
		case err != nil:
			t.Fatalf("request %d: %v", i, err)
		case a.Granted:
			got = append(got, fmt.Sprintf("%dx%d", int64(a.Fence-now), a.Fences))
		default:
			got = append(got, map[driver.Why]string{driver.WhyHeld: "held", voting.FenceTooLow: "low", driver.WhyReleased: "gone"}[a.Why])
		}
		failIf(t, c.Life == "", "request %d does not name the server", i)
	}
	got[15], got[25] = "minted", "minted"
	want := "0x1 1x1 2x1 3x1 4x1 5x1 6x1 7x1 0x1 50x1 -10x1 100x5 held held low minted held low 1 1 0 1 low low gone minted held low"
	if text := strings.Join(got, " "); !strings.HasPrefix(text, want) {
		t.Errorf("answered %s\nwant     %s", text, want)
	}
}

// A mark that could not be moved covers nothing: not for the next request of
// the script either, which a full server lets through after a release.
func TestProposalNeedsItsMark(t *testing.T) {
	w, d := newVoting(t)
	held := proposing("held", w.micros())
	w.grant(d, held)
	mark := w.admin.Get(w.ctx, proposedKey).Val()
	w.do("CONFIG", "SET", "maxmemory", "1")
	ahead := w.micros() + 3_000_000
	calls := append(tries(d, proposing("a", ahead)), d.releaseCall(held.Withdrawal()))
	calls = append(calls, tries(d, proposing("b", ahead))...)
	w.together(d, calls...)
	failIf(t, w.admin.Get(w.ctx, proposedKey).Val() == mark, "the mark was not moved")
	if fence, ok := granted(calls[2]); !ok || w.admin.Get(w.ctx, proposedKey).Val()[34:50] < fmt.Sprint(fence) {
		t.Errorf("granted %d (%v) with the mark %q", fence, ok, w.admin.Get(w.ctx, proposedKey).Val())
	}
}

// The rights that the documentation asks of a node's users are enough, and
// without one of them nothing is granted.
func TestNodeRights(t *testing.T) {
	w := newWorld(t)
	w.admit(w.node())
	user := func(change ...string) *Driver {
		plain := w.as("bob", change...)
		return w.nodeOver(plain.client.(redis.UniversalClient), nodeMaxTTL)
	}
	d := user("-info")
	if _, err := contend.Try(w.ctx, seen(d), ask("k")); d.Classify(err) != driver.ClassDenied {
		t.Errorf("without +info Try says %v", err)
	}
	d = user()
	a, b := proposing("k", w.micros()), proposing("k", 1)
	w.grant(d, a)
	hints := w.wait(d, b)
	w.on(d).renew(a, queued(b)).release(a).hint(hints)
	b.Fence = w.micros()
	w.on(d).grant(b).release(b)
	w.record(d)
	w.do("DEL", recordKey, proposedKey)
	w.admit(d)
	mute := user("-publish")
	c, e := proposing("k", w.micros()), proposing("k", 1)
	w.on(mute).grant(c).on(w.node()).wait(e).on(mute).release(c) // and learns that it may not publish
	c = proposing("other", w.micros())
	w.grant(mute, c)
	if text := w.admin.Get(w.ctx, d.names("other").grant).Val(); text[58] != 'M' {
		t.Errorf("the grant is %q", text)
	}
	e = proposing("other", 1)
	w.mustLook(w.node(), e)
}

// A vote that a foreign client has is refused, alone and in company; one whose record is
// gone can be withdrawn.
func TestVotesWithoutARecord(t *testing.T) {
	w, d := newVoting(t)
	w.do("SET", "lock:k", "somebody")
	calls := tries(d, proposing("k", w.micros()), proposing("k", w.micros()))
	w.together(d, calls...)
	for _, c := range calls {
		if _, ok := granted(c); ok || c.Err != nil {
			t.Errorf("in company: granted %v, %v", ok, c.Err)
		}
	}
	if res := w.refuse(d, proposing("k", w.micros())); !res.Holder.Foreign {
		t.Errorf("refused by %+v", res.Holder)
	}
	a := proposing("own", w.micros())
	a.Settled, a.UpTo = true, a.Fence
	w.on(d).grant(a).do("DEL", d.names("own").grant).release(a)
	failIf(t, w.inspect(d, "own").Held, "the vote stands")
}

// What a proposal must be above is said with each refusal, whoever is in the way.
func TestRefusedProposalHearsTheFloor(t *testing.T) {
	w, d := newVoting(t)
	a, b := proposing("k", w.micros()+2_000_000), proposing("k", 1)
	w.grant(d, a)
	if res := w.refuse(d, proposing("k", a.Fence-1)); res.Fence != a.Fence || res.Holder.Since.IsZero() {
		t.Errorf("refused with %+v, want the floor %d, and since when it is held", res, a.Fence)
	}
	w.wait(d, b)
	if res := w.refuse(d, queued(proposing("k", a.Fence-1))); res.Fence != a.Fence {
		t.Errorf("behind another: refused with %+v, want the floor %d", res, a.Fence)
	}
	r := reader("r")
	r.Fence = a.Fence
	w.grant(d, r)
	if res := w.refuse(d, proposing("r", a.Fence)); res.Holder.Owner != r.Owner {
		t.Errorf("refused with %+v, and %q has it", res, r.Owner)
	}
	writer := proposing("r", 1)
	w.wait(d, writer)
	beside := reader("r")
	beside.Fence = a.Fence
	if res := w.refuse(d, queued(beside)); res.Fence == 0 || res.Fence >= r.Fence {
		t.Errorf("readers share their fences, and the floor is %d where one has %d", res.Fence, r.Fence)
	}
	if res := w.refuse(d, queued(proposing("r", r.Fence-1))); res.Fence != r.Fence {
		t.Errorf("a writer's floor is %d, and a reader has %d", res.Fence, r.Fence)
	}
}

// A lease of a node is renewed by who has it with that fence, not by who has an earlier vote,
// or was handed the key and has yet to claim it; and for the longest TTL as well.
func TestRenewalOfAVote(t *testing.T) {
	for name, ask := range map[string]func(string) contend.Owner{"alone": ask, "shared": reader} {
		t.Run(name, func(t *testing.T) {
			w, d := newVoting(t)
			a, b, x := proposing("x", w.micros()), ask("x"), ask("k")
			x.Fence, b.Fence = a.Fence, 1
			w.grant(d, x)
			x.TTL = nodeMaxTTL
			w.renewed(d, x)
			x.Fence++
			w.renewsNothing(d, x)
			w.on(d).grant(a).wait(b).release(a)
			b.Fence = a.Fence
			w.renewsNothing(d, b)
		})
	}
}

// What a node mints is above what it may have forgotten of others.
func TestMintedIsAboveTheProposalsMark(t *testing.T) {
	w, d := newVoting(t)
	a := ask("k")
	w.on(d).grant(a).release(a)
	ahead := w.micros() + 10_000_000
	w.mark(ahead, ahead, ahead, w.micros())
	if res := w.grant(d, ask("k")); res.Fence <= ahead {
		t.Errorf("minted %d below %d", res.Fence, ahead)
	}
}

// A proposal must be above what was minted for any key, and near the clock whatever the
// proposals' mark covers: alone, and in company.
func TestProposalBesideTheMarks(t *testing.T) {
	w, d := newVoting(t)
	now := w.micros()
	w.mark(now, now, now+100_000_000, now)
	far := proposing("k", now+60_000_000)
	w.tooLow(d, far)
	w.do("SET", markKey, now+2_000_000)
	low := proposing("k", now+1_000_000)
	if floor := w.tooLow(d, low); floor != now+2_000_000 {
		t.Errorf("the floor is %d, and %d was minted", floor, now+2_000_000)
	}
	for _, r := range []contend.Owner{far, low} {
		for _, c := range w.together(d, tries(d, r, r)...) {
			if _, ok := granted(c); ok || c.Err != nil {
				t.Errorf("in company, %d is granted: %v, %v", r.Fence, ok, c.Err)
			}
		}
	}
}

// Fences in a row for one that shares a key are all above what anybody has, and above
// what keys have that are forgotten.
func TestFencesInARowBesideAReader(t *testing.T) {
	w, d := newVoting(t)
	a := reader("k")
	a.Fence = w.micros()
	w.grant(d, a)
	for floor, want := range map[uint64]int{a.Fence - 1000: 2, a.Fence + 1000: 1} {
		w.mark(floor, floor, floor, w.micros())
		b := reader("k")
		b.Fence, b.Fences = max(a.Fence+2, floor+1), 5
		if res := w.grant(d, b); res.Fences != want {
			t.Errorf("%d fences up to %d, want %d", res.Fences, b.Fence, want)
		}
		w.on(d).release(b).do("DEL", proposedKey)
		a.Fence = max(a.Fence, b.Fence)
	}
}

// One who claims a handoff with a proposal gets that, also when it did not say that it proposes.
func TestClaimWithAProposal(t *testing.T) {
	w, d := newVoting(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b).release(a)
	b.Fence = w.micros() + 1_000_000
	if res := w.grant(d, queued(b)); res.Fence != b.Fence {
		t.Errorf("claimed with %d, want %d", res.Fence, b.Fence)
	}
}

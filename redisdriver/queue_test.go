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
	"github.com/hasplock/hasp/internal/contend"
)

// Places are ordered by last + 1, so that no clock that steps reorders them.
func TestPlacesAreNumbered(t *testing.T) {
	w, d := newPlain(t)
	w.grant(d, ask("k"))
	var rs []contend.Owner
	for range 4 {
		rs = append(rs, ask("k"))
		w.refuse(d, queued(rs[len(rs)-1]))
	}
	w.on(d).release(rs[1]).join(rs[0]) // asking again keeps the number
	for _, z := range w.admin.ZRangeWithScores(w.ctx, "hasp.queue:{lock:k}", 0, -1).Val() {
		t.Log(z.Member, z.Score)
	}
	for i, want := range map[int]float64{0: 1, 2: 3, 3: 4} {
		if got := w.admin.ZScore(w.ctx, "hasp.queue:{lock:k}", value(rs[i].Claim())).Val(); got != want {
			t.Errorf("place %d has the number %v, want %v", i, got, want)
		}
	}
}

// A waiter whose process is gone costs nothing: PUBLISH reaches nobody, and
// the release that finds out hands on at once.
func TestNobodyListens(t *testing.T) {
	w, d := newPlain(t)
	a, c := ask("k"), ask("k")
	w.grant(d, a)
	gone := w.driver(nil)
	for range 3 { // several places of one dead inbox
		w.wait(gone, ask("k"))
	}
	hints := w.wait(d, c)
	w.succeeds(gone.Close())
	w.subscribed(gone, 0)
	w.on(d).release(a).has(c).hint(hints)
}

// A place that was passed over because nobody listened, for example while the
// subscription was made anew, keeps its place once it gives a sign of life.
func TestPassedOverPlaceStays(t *testing.T) {
	w, d, slow := newTwo(t)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.on(d).grant(a).on(slow).wait(b).on(d).wait(c)
	w.strike("k", slow)
	w.on(d).release(a).has(c)
	w.tick()
	if res := w.refuse(slow, queued(b)); res.Ahead != 0 {
		t.Errorf("it came back at place %d", res.Ahead)
	}
	w.on(d).grant(c).release(c).has(b)
}

// A claim time that passes strikes the whole inbox: its other places are
// passed over at once, and a dead process costs one claim time, not one for each of
// its waiters. The struck place itself stays until its patience has passed.
func TestExpiredClaimPassesOverTheInbox(t *testing.T) {
	w := newWorld(t)
	d, hung := w.driver(nil), hasty(w.driver(nil))
	a, c := ask("k"), ask("k")
	w.grant(d, a)
	var lost []contend.Owner
	var hinted []<-chan driver.Hint
	for range 3 {
		r := ask("k")
		r.TTL = 50 * time.Millisecond // and so is its claim time
		lost = append(lost, r)
		hinted = append(hinted, w.wait(hung, r))
	}
	w.on(d).wait(c).release(a).hint(hinted[0]) // it got the hint, and its claim time may have passed
	w.until("the claim lapses", func() bool { return !w.inspect(d, "k").Held })
	if res := w.try(d, queued(c)); !res.Granted || res.Abandoned {
		t.Fatalf("the next live place got %+v", res)
	}
	line := w.inspect(d, "k").Queue
	failIf(t, len(line) != 3 || line[0].Owner != lost[0].Owner, "the queue is %v", line)
	// Signs of life: it was slow, not dead, and has its old place.
	if res := w.refuse(hung, queued(lost[0])); res.Ahead != 0 {
		t.Errorf("it came back at place %d", res.Ahead)
	}
	w.on(d).release(c).hint(hinted[0])
}

// Each place has its own claim time: what its TTL allows, but never less than
// three of its round trips.
func TestClaimTimeIsThreeRoundTrips(t *testing.T) {
	w := newWorld(t)
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond: claimTime, 400 * time.Millisecond: 1200 * time.Millisecond, time.Minute: maxClaim,
	} {
		d := w.driver(nil)
		a, b := ask("k"), ask("k")
		w.grant(d, a)
		w.watch(d, b)
		d.delay.ns.Store(0)
		d.delay.most = maxClaim
		d.delay.sample(took)
		w.refuse(d, queued(b))
		begun := time.Now()
		w.release(d, a)
		if left := w.inspect(d, "k").Left; !lasts(left, want, begun) {
			t.Errorf("round trips of %v: the claim lasts %v, want %v", took, left, want)
		}
		w.release(d, b)
	}
}

// A polling waiter says so in its place: nobody listens for it, and it is handed the
// key all the same.
func TestPollingPlaceIsNeverSkipped(t *testing.T) {
	w, d := newPlain(t)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.grant(d, a)
	if res := w.refuse(d, queued(b)); res.RetryIn <= 0 || res.RetryIn > pollStep {
		t.Errorf("a first in the queue that polls got %+v", res)
	}
	w.on(d).wait(c).release(a).has(b)
	if left := w.inspect(d, "k").Left; left <= pollMax {
		t.Errorf("a waiter that looks every %v has %v to claim", pollMax, left)
	}
	w.grant(d, queued(b))
}

// Where the count of receivers does not include us, behind a proxy or on an
// older cluster, a count of 0 means nothing.
func TestUncountedPlaceIsNotSkipped(t *testing.T) {
	w, d := newPlain(t)
	far := w.driver(nil)
	a, b := ask("k"), ask("k")
	w.grant(d, a)
	w.watch(far, b)
	far.boxes.Open[-1].Raise(false)
	w.on(far).join(b).on(d).wait(ask("k"))
	_ = far.Close()
	w.subscribed(far, 0)
	w.on(d).release(a).has(b)
}

// An owner that gives up after its claim lapsed leaves no place behind that
// would come back.
func TestReleaseAfterAnExpiredClaim(t *testing.T) {
	w, d := newPlain(t)
	hasty(d)
	a, b, c := ask("k"), ask("k"), ask("k")
	b.TTL = 20 * time.Millisecond
	w.on(d).grant(a).wait(b).release(a)
	w.until("the claim lapses", func() bool { return !w.inspect(d, "k").Held })
	w.on(d).release(b).grant(c)
	if info := w.inspect(d, "k"); info.Waiters != 0 {
		t.Errorf("in the queue are %v", info.Queue)
	}
}

// A hint for an owner that nobody waits for is answered: the key goes on to the
// next, and its place is no ghost. Nor was that a release: one that was away from
// its subscription for a moment may ask again.
func TestHintForNobodyPassesOn(t *testing.T) {
	w, d := newPlain(t)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.grant(d, a)
	ctx, leave := context.WithCancel(w.ctx)
	if hints, err := contend.Watch(ctx, d, b); hints == nil || err != nil {
		t.Fatal(hints, err)
	}
	w.refuse(d, queued(b))
	hints := w.wait(d, c)
	leave() // without a Release
	w.until("it is forgotten", func() bool { mode, _ := d.boxes.mode(b.Claim()); return mode == modePoll })
	w.on(d).release(a).hint(hints).claim(c)
	if res := w.refuse(d, queued(b)); res.Why != driver.WhyHeld || res.Holder.Owner != c.Owner {
		t.Errorf("an owner that was away for a moment got %+v", res)
	}
	w.on(d).release(c).claim(b)
}

// A hint that comes late finds an owner that claimed by itself and is at work:
// the answer to it must not take the lease away.
func TestLateHintSparesTheLease(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b).release(a).claim(b)
	if err := w.unclaimed(d, b); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the answer to a late hint: %v", err)
	}
	w.has(d, b)
	late := w.driver(nil)
	text := fmt.Sprintf("%03d%s%s", len(value(b.Claim())), value(b.Claim()), "lock:k")
	box := late.boxes.inbox(-1) // where b is unknown
	box.deliver(text)
	late.running.Wait()
	w.on(d).has(b).release(b)
}

// Only the first in the queue checks a foreign holder, which gives no hint when
// it releases; the new first gets a RetryIn.
func TestFirstLooksAfterForeigners(t *testing.T) {
	w, d := newPlain(t)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.admin.Set(w.ctx, "lock:k", "peer", time.Hour)
	w.wait(d, a)
	hints := w.wait(d, b)
	w.wait(d, c)
	if res := w.refuse(d, queued(a)); res.RetryIn != lookAfter || res.Ahead != 0 {
		t.Errorf("the first got %+v", res)
	}
	if res := w.refuse(d, queued(b)); res.RetryIn != 0 || res.Ahead != 1 {
		t.Errorf("the second got %+v", res)
	}
	renewed := func() []driver.Renewal { return w.answers(d, queued(b), queued(c)) }
	if rs := renewed(); rs[0] != (driver.Renewal{}) || rs[1] != (driver.Renewal{}) {
		t.Errorf("signs of life of the others: %+v", rs)
	}
	w.release(d, a) // gives up
	w.hint(hints)
	if res := w.refuse(d, queued(b)); res.RetryIn != lookAfter {
		t.Errorf("who became the first got %+v", res)
	}
	if rs := renewed(); rs[0].RetryIn != lookAfter || rs[1].RetryIn != 0 {
		t.Errorf("signs of life: %+v", rs)
	}
	w.admin.Del(w.ctx, "lock:k")
	if rs := renewed(); rs[0].RetryIn != time.Millisecond {
		t.Errorf("signs of life when the key is free: %+v", rs)
	}
	w.grant(d, queued(b))
}

// When a key is handed off, who looks whether it is claimed is the first in the queue that gave
// a sign of life in the last half of its patience, of the four behind the one that has it.
func TestWhoLooksAfterAClaim(t *testing.T) {
	const malformed = 100
	for name, c := range map[string]struct {
		silent []int // places, the first of which is next
		looks  int
	}{
		"all are well":           {nil, 1},
		"the first is silent":    {[]int{1}, 2},
		"three are silent":       {[]int{1, 2, 3}, 4},
		"more than three are":    {[]int{1, 2, 3, 4}, 1},
		"the second alone is":    {[]int{2}, 1},
		"one without its place":  {[]int{1, -2}, 3},
		"one that is malformed":  {[]int{1, malformed + 2}, 3},
		"the last of them is":    {[]int{1, 3}, 2},
		"all but the last three": {[]int{1, 2}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w, d := newPlain(t)
			a := ask("k")
			w.grant(d, a)
			var rs []contend.Owner
			for range 6 {
				r := ask("k")
				w.wait(d, r)
				rs = append(rs, r)
			}
			places := d.names("k").places
			for _, i := range c.silent {
				if i < 0 {
					w.do("HDEL", places, rs[-i].Owner)
					continue
				}
				if i > malformed {
					w.do("HSET", places, rs[i-malformed].Owner, "abc def")
					continue
				}
				place := strings.Fields(w.admin.HGet(w.ctx, places, rs[i].Owner).Val())
				place[0] = fmt.Sprintf("%013d", w.micros()/1000-uint64(rs[i].Patience.Milliseconds())*3/4)
				w.do("HSET", places, rs[i].Owner, strings.Join(place, " "))
			}
			sub := w.news(d)
			w.release(d, a)
			for {
				m := w.came(sub)
				if !strings.HasPrefix(m, "+") {
					continue // the hint to the one that has the key
				}
				for i, r := range rs {
					if strings.Contains(m, r.Owner) && i != c.looks {
						t.Errorf("place %d is to look, want %d", i, c.looks)
					}
				}
				return
			}
		})
	}
}

// One who claims a handoff is given as many fences as it asks for.
func TestClaimOfSeveralFences(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	b.Fences = 3
	before := w.grant(d, a).Fence
	w.on(d).wait(b).release(a)
	if res := w.grant(d, queued(b)); res.Fences != 3 || res.Fence < before+3 {
		t.Errorf("claimed with %+v after %d", res, before)
	}
}

// An owner whose lock has no record, or another owner's, gets a new fence, also if it is the holder.
func TestLockBesideAnothersGrant(t *testing.T) {
	w, d := newPlain(t)
	a := ask("k")
	before := w.grant(d, a).Fence
	grant := d.names("k").grant
	for _, change := range [][]any{
		{"SET", grant, strings.Replace(w.admin.Get(w.ctx, grant).Val(), a.Owner, ask("k").Owner, 1)},
		{"DEL", grant},
	} {
		w.do(change...)
		res := w.grant(d, a)
		failIf(t, res.Fence <= before, "granted with %d after %d", res.Fence, before)
		before = res.Fence
	}
}

// Whoever is first in the queue hears of one that takes a free key from before it, and of a
// sharer that is let in: when the lease ends, or to look at once.
func TestNextHearsOfAGrantFromTheQueue(t *testing.T) {
	for name, c := range map[string]struct {
		r     contend.Owner
		after time.Duration
	}{
		"alone":  {ask("k"), 30*time.Minute + time.Millisecond},
		"shared": {sharer("k", 2), time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			w, d, other := newTwo(t)
			next := ask("k")
			w.on(d).grant(ask("k")).wait(c.r).on(other).wait(next)
			sub := w.news(other)
			w.on(d).do("DEL", "lock:k").claim(c.r).do("PUBLISH", other.inboxName(), "end")
			m := w.came(sub)
			if hint, ok := other.parseHint(m); !ok || hint.Owner != next.Owner || hint.after != c.after {
				t.Errorf("%q came, want a hint to look after %v", m, c.after)
			}
		})
	}
}

// In a cluster hints go by the shard's channels, and a place there is passed over as well.
func TestHintsOfTheShard(t *testing.T) {
	for _, mode := range []string{"N", "C"} {
		w, d, other := newTwo(t)
		a, b := ask("k"), ask("k")
		w.grant(d, a)
		w.many(other, "k", 1, mode, w.micros()/1000)
		sub := w.admin.SSubscribe(w.ctx, other.inboxName())
		defer sub.Close()
		if _, err := sub.Receive(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.release(d, a)
		if m := w.came(sub); m[3:29] != w.holder(d, "k") {
			t.Errorf("mode %s: %q came, and the key is held by %q", mode, m, w.holder(d, "k"))
		}
		if mode == "N" {
			continue
		}
		c := ask("other")
		b.Key = c.Key
		w.grant(d, c)
		w.many(w.driver(nil), c.Key, 1, mode, w.micros()/1000)
		w.on(d).wait(b).release(c)
		if got := w.holder(d, c.Key); got != b.Owner {
			t.Errorf("nobody listens where the first waits, and the key went to %q", got)
		}
	}
}

// Where a search has come to is noted for the next one.
func TestSearchIsNoted(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	w.grant(d, a)
	w.many(w.driver(nil), "k", 5, "c", w.micros()/1000)
	w.on(d).wait(b, ask("k")).release(a).has(b)
	if !w.admin.HExists(w.ctx, d.names("k").places, "?").Val() {
		t.Error("five places are passed over, and none is noted")
	}
}

// What a sign of life in the same millisecond as a strike says does not count.
func TestStrikeOfTheSameMillisecond(t *testing.T) {
	w, d, other := newTwo(t)
	a, b := ask("k"), ask("k")
	w.grant(d, a)
	at := w.micros() / 1000
	w.many(other, "k", 1, "c", at)
	w.do("HSET", d.names("k").places, "!", fmt.Sprintf("%s %013d;", other.inboxName(), at))
	w.news(other) // somebody listens
	w.on(d).wait(b).release(a).has(b)
}

// Strikes stay when another inbox gets one.
func TestStrikesStay(t *testing.T) {
	w := newWorld(t)
	d, stopped := w.driver(nil), hasty(w.driver(nil))
	a, b := ask("k"), ask("k")
	b.TTL = 20 * time.Millisecond // and so is its claim time
	w.on(d).grant(a).on(stopped).wait(b).do("HSET", d.names("k").places, "!", "hasp.inbox:x 5;").on(d).
		release(a)
	w.until("it lapses", func() bool { return w.admin.Exists(w.ctx, "lock:k").Val() == 0 })
	w.grant(d, queued(ask("k")))
	if got := w.admin.HGet(w.ctx, d.names("k").places, "!").Val(); !strings.Contains(got, "hasp.inbox:x 5;") || !strings.Contains(got, stopped.inboxName()) {
		t.Errorf("the strikes are %q", got)
	}
}

// claimTime is how long a key is kept for an owner in the queue, once it is handed off, in milliseconds.
func (w *world) claimTime(d *Driver, r contend.Owner) (ms int) {
	w.Helper()
	var contact, patience int
	_, err := fmt.Sscan(w.admin.HGet(w.ctx, d.names(r.Key).places, r.Owner).Val(), &contact, &patience, &ms)
	w.succeeds(err)
	return ms
}

// Whoever looks after several handoffs of one script looks when the last of them has lapsed.
func TestWhoLooksAfterSeveralClaims(t *testing.T) {
	w := newWorld(t)
	d, other := hasty(w.driver(nil)), w.driver(nil)
	a, long, short, writer := ask("k"), reader("k"), reader("k"), ask("k")
	long.TTL, short.TTL = 5*time.Second, 400*time.Millisecond // and so are their claim times
	w.on(d).grant(a).wait(long, short).on(other).wait(writer)
	claim := max(w.claimTime(d, long), w.claimTime(d, short)) // a slow server makes either longer
	sub := w.news(other)
	w.release(d, a)
	if m := w.came(sub); !strings.HasPrefix(m, fmt.Sprintf("+%d ", claim)) {
		t.Errorf("%q came, and the longest claim time is %d ms", m, claim)
	}
}

// One that lets in as many as one script may is told that it did, not to go on at once.
func TestTryThatLetsManyIn(t *testing.T) {
	w, d := newPlain(t)
	w.grant(d, ask("k"))
	for range 40 {
		w.wait(d, reader("k"))
	}
	w.do("DEL", "lock:k")
	writer := ask("k")
	w.watch(d, writer)
	if res := w.refuse(d, queued(writer)); res.Ahead != 8 || res.RetryIn <= moreAfter {
		t.Errorf("refused with %+v", res)
	}
}

// Where a search is cut short, the one of the last in the queue goes on that gave a sign of life last.
func TestWhoGoesOnWithASearch(t *testing.T) {
	w := newWorld(t)
	d, latest, last := w.driver(nil), w.driver(nil), w.driver(nil)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.grant(d, a)
	w.many(w.driver(nil), "k", 1500, "c", w.micros()/1000)
	w.on(latest).wait(b).on(last).wait(c)
	w.tick()
	w.sign(latest, b)
	hints, others := w.news(latest), w.news(last)
	w.on(d).release(a).do("PUBLISH", last.inboxName(), "end")
	if m := w.came(others); m != "end" {
		t.Errorf("the last got %q", m)
	}
	if _, ok := latest.parseHint(w.came(hints)); !ok {
		t.Error("no hint came")
	}
}

// One whose Try hands the key to another looks whether it is claimed, wherever it waits.
func TestWhoHandsOverLooksAfterIt(t *testing.T) {
	w, d := newPlain(t)
	w.grant(d, ask("k"))
	for range 6 {
		w.wait(d, ask("k"))
	}
	w.do("DEL", "lock:k")
	last := ask("k")
	w.watch(d, last)
	if res := w.refuse(d, queued(last)); res.Ahead != 5 || res.RetryIn <= 0 {
		t.Errorf("refused with %+v", res)
	}
}

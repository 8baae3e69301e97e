// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// sleeps waits like hasp, for a hint, for its RetryIn, or for what its signs of life say when it gives some, until it is granted the key.
func (w *world) sleeps(d *Driver, r contend.Owner, hints <-chan driver.Hint, signs bool) {
	w.Helper()
	var retry time.Duration
	for {
		var at, sign <-chan time.Time
		if retry > 0 {
			at = time.After(retry)
		}
		if signs {
			sign = time.After(200 * time.Millisecond)
		}
		select {
		case <-hints:
		case <-at:
		case <-sign:
			if a := w.answers(d, queued(r))[0]; a.Err == nil && a.RetryIn == 0 {
				continue
			}
		case <-w.ctx.Done():
			w.Fatal("the waiter got no hint")
		}
		res := w.try(d, queued(r))
		if res.Granted {
			return
		}
		retry = res.RetryIn
	}
}

// many puts so many places of one inbox in the queue, all with the same sign of life.
func (w *world) many(d *Driver, key string, n int, mode string, contact uint64) {
	w.Helper()
	names := d.names(key)
	pipe := w.admin.Pipeline()
	for i := range n {
		r := ask(key)
		pipe.ZAdd(w.ctx, names.queue, redis.Z{Score: float64(i + 1), Member: value(r.Claim())})
		pipe.HSet(w.ctx, names.places, r.Owner, fmt.Sprintf("%013d 3600000 100 %s %s", contact, mode, d.inboxName()))
	}
	pipe.PExpire(w.ctx, names.queue, time.Minute)
	pipe.PExpire(w.ctx, names.places, time.Minute)
	_, err := pipe.Exec(w.ctx)
	w.succeeds(err)
}

// However many places of dead processes are before a waiter, it gets a hint,
// and has the key after a few Tries, again and again.
func TestManyDeadPlacesAhead(t *testing.T) {
	for name, contact := range map[string]func(w *world) uint64{
		"their patience is over": func(*world) uint64 { return 1 },
		"killed just now":        func(w *world) uint64 { return w.micros() / 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			w, d, dead := newTwo(t)
			a, b, c := ask("k"), ask("k"), ask("k")
			w.grant(d, a)
			w.many(dead, "k", 5500, "c", contact(w))
			hints, later := w.wait(d, b), w.wait(d, c)
			w.on(d).do("CONFIG", "RESETSTAT").release(a)
			if n := w.admin.ZCard(w.ctx, d.names("k").queue).Val(); n < 5502-1200 {
				t.Errorf("one script left %d places", n)
			}
			var wg sync.WaitGroup
			wg.Go(func() { w.sleeps(d, c, later, false) }) // either may be the next in the queue
			w.sleeps(d, b, hints, false)
			w.release(d, b)
			wg.Wait()
			if n := w.calls()["evalsha"]; n > 25 {
				t.Errorf("%d scripts", n)
			}
		})
	}
}

// A place among those that were passed over is found once it shows a sign of
// life, whether by a Try or by a renewal, wherever the search had come to.
func TestPassedOverPlaceIsFoundAgain(t *testing.T) {
	for _, renews := range []bool{false, true} {
		w, d, dead := newTwo(t)
		a, b, c, late := ask("k"), ask("k"), ask("k"), ask("k")
		w.on(d).grant(a).on(dead).wait(late)
		w.many(dead, "k", 1500, "c", w.micros()/1000)
		w.do("ZADD", d.names("k").queue, 700.5, value(late.Claim()))
		hints := w.wait(d, b)
		w.strike("k", dead)
		w.release(d, a)
		w.sleeps(d, b, hints, false)
		w.refuse(d, queued(c))
		w.tick()
		if renews {
			w.renew(d, queued(late))
		} else {
			w.refuse(dead, queued(late))
		}
		w.release(d, b)
		if !renews { // its process lives: those before it come first
			w.until("those before it were handed the key", func() bool { return w.holder(d, "k") != "" })
			continue
		}
		w.until("it is handed the key", func() bool {
			w.try(d, queued(c))
			return w.holder(d, "k") == late.Owner
		})
	}
}

// After the server's clock was set back a dead place is handed the key once more,
// not again and again until the clock has caught up, and a live one is not
// passed over.
func TestDeadPlaceAfterTheClockWasSetBack(t *testing.T) {
	w, step := clocked(t)
	d, dead := w.driver(nil), hasty(w.driver(nil))
	r := func() contend.Owner {
		r := ask("k")
		r.TTL = 50 * time.Millisecond // and so is its claim time
		return r
	}
	a, lost, other, b, c := ask("k"), r(), r(), ask("k"), ask("k")
	w.on(d).grant(a).on(dead).wait(lost, other)
	hints, later := w.wait(d, b), w.wait(d, c)
	step("-3600")
	w.release(d, a)
	w.sleeps(d, b, hints, true)
	handed := w.admin.HGet(w.ctx, d.names("k").places, lost.Owner).Val()
	for range 3 {
		w.release(d, b)
		if got := w.holder(d, "k"); got != c.Owner {
			t.Fatalf("with the clock set back, the key went to %q; the place that lapsed is %q", got, handed)
		}
		w.on(d).hint(later).claim(c)
		b, c = c, ask("k")
		later = w.wait(d, c)
	}
}

// Readers that enter at once, thousands of one process which is too slow to
// claim in time, are all in once it is at work again.
func TestManyReadersOfASlowProcess(t *testing.T) {
	t.Parallel()
	const n = 3000
	w := newWorld(t, "--lua-time-limit", "0") // or a server that stands still within a script says BUSY
	d := hasty(w.driver(nil))
	a := ask("k")
	w.grant(d, a)
	rs, hints := make([]contend.Owner, n), make([]<-chan driver.Hint, n)
	for i := range rs {
		rs[i] = reader("k")
		rs[i].TTL, rs[i].Patience = 300*time.Millisecond, time.Hour // the TTL bounds the claim time
		if i%2 == 0 {
			rs[i].TTL = 20 * time.Millisecond
		}
		hints[i] = w.wait(d, rs[i])
	}
	w.release(d, a)
	w.until("claims lapse", func() bool { return w.admin.Exists(w.ctx, "lock:k").Val() == 0 })
	var wg sync.WaitGroup
	begun := time.Now()
	for i, r := range rs {
		wg.Go(func() {
			r.TTL = time.Hour
			w.sleeps(d, r, hints[i], false)
		})
	}
	wg.Wait()
	t.Logf("%d readers are in after %v", n, time.Since(begun))
	if got := w.inspect(d, "k").Leases; got != n {
		t.Errorf("%d hold the key", got)
	}
}

// After a claim or a lease is over, the key is free for 50 ms at most, for a waiter that only asks on hints and at its
// RetryIn: the hint has it look in time, and then it is granted the key, or has to wait for no more than those 50 ms.
// The server's clock is stepped to when the hint says.
func TestWakingAfterDeaths(t *testing.T) {
	t.Parallel()
	const bound, claim = 50 * time.Millisecond, 30 * time.Minute
	for name, claims := range map[string]bool{"a claim that lapses": false, "a holder that dies after a handoff": true} {
		t.Run(name, func(t *testing.T) {
			w, step := clocked(t)
			ahead := func(by time.Duration) { step(fmt.Sprintf("+%f", by.Seconds())) }
			d, stopped := w.driver(nil), w.driver(nil)
			sub := w.news(d)
			a, next, b := ask("k"), ask("k"), ask("k")
			a.TTL, next.TTL, b.TTL = time.Hour, time.Hour, time.Hour
			next.Patience, b.Patience = 5*time.Hour, 5*time.Hour
			w.on(d).grant(a).on(stopped).wait(next)
			place := strings.Fields(w.admin.HGet(w.ctx, d.names("k").places, next.Owner).Val())
			place[2] = fmt.Sprint(claim.Milliseconds()) // how long the key is kept for it, once it is handed off
			w.do("HSET", d.names("k").places, next.Owner, strings.Join(place, " "))
			w.on(d).wait(b)
			w.release(d, a)
			m := w.came(sub)
			hint, _ := d.parseHint(m)
			if hint.after < claim || hint.after > claim+bound {
				t.Errorf("%q has it look after %v, want %v", m, hint.after, claim)
			}
			if claims {
				w.grant(stopped, queued(next))
			}
			ahead(hint.after)
			res := w.try(d, queued(b))
			if claims {
				if res.Granted || res.RetryIn > res.Left+bound {
					t.Errorf("beside the second holder: %+v", res)
				}
				ahead(hint.after + res.RetryIn)
				res = w.try(d, queued(b))
			}
			if !res.Granted {
				failIf(t, res.RetryIn == 0 || res.RetryIn > bound, "told to look too early: %+v", res)
				time.Sleep(res.RetryIn)
				w.grant(d, queued(b))
			}
		})
	}
}

// The first in the queue that asks in the last millisecond of a lease, when PTTL says 0, asks
// again after it; behind a key without an expiry it looks from time to time.
func TestRefusalInTheLastMillisecond(t *testing.T) {
	r := ask("k")
	head := fmt.Sprintf("%s %016d %013d h", r.Owner, 7, 1763719200123)
	for left, want := range map[int64]time.Duration{
		0: time.Millisecond, 1: 2 * time.Millisecond, 40_000: 40_001 * time.Millisecond, -1: lookAfter,
	} {
		a, err := parseTry([]any{int64(0), value(r.Claim()), left, int64(0), head, int64(nextFound), ""})
		must(t, err)
		if a.refuse(true); a.RetryIn != want {
			t.Errorf("with %d ms left: RetryIn is %v, want %v", left, a.RetryIn, want)
		}
	}
}

// A hint to look later comes at that moment, and the last of several counts.
func TestHintComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{hint: make(chan driver.Hint, 1)}
		for _, after := range [][]time.Duration{{400 * time.Millisecond}, {time.Minute, time.Second}, {time.Second, time.Minute}} {
			begun := time.Now()
			for _, d := range after {
				w.signalLater(d)
			}
			<-w.hint
			if took := time.Since(begun); took != after[len(after)-1] {
				t.Errorf("the hint for %v comes after %v", after, took)
			}
		}
	})
}

// All who wait are dead: whatever looks for the next in the queue finds nobody, and says so.
func TestNobodyIsLeftInTheQueue(t *testing.T) {
	for _, n := range []int{1, 150, 350} {
		for name, frees := range map[string]func(w *world, d, dead *Driver){
			"a release": func(w *world, d, dead *Driver) {
				a := ask("k")
				w.grant(d, a)
				w.many(dead, "k", n, "c", 1)
				w.release(d, a)
			},
			"a reader's release beside another": func(w *world, d, dead *Driver) {
				a := reader("k")
				w.on(d).grant(a, reader("k"))
				w.many(dead, "k", n, "c", 1)
				w.release(d, a)
			},
			"a place that is given up": func(w *world, d, dead *Driver) {
				w.grant(d, ask("k"))
				a := ask("k")
				w.wait(d, a)
				w.many(dead, "k", n, "c", 1)
				w.on(d).do("ZADD", d.names("k").queue, 0.5, value(a.Claim())).release(a)
			},
			"a Try": func(w *world, d, dead *Driver) {
				w.many(dead, "k", n, "c", 1)
				w.grant(d, ask("k"))
			},
		} {
			t.Run(fmt.Sprint(name, ", ", n), func(t *testing.T) {
				w, d := newPlain(t)
				frees(w, d, w.driver(nil))
				if info := w.inspect(d, "k"); info.Waiters != 0 {
					t.Errorf("%d wait", info.Waiters)
				}
			})
		}
	}
}

// Places that are passed over are not looked at one by one again within a second.
func TestPassedOverPlacesCostNothing(t *testing.T) {
	w, d, dead := newTwo(t)
	a, b := ask("k"), ask("k")
	w.grant(d, a)
	w.many(dead, "k", 150, "c", w.micros()/1000)
	w.wait(d, b)
	w.strike("k", dead)
	w.do("DEL", "lock:k")
	if res := w.refuse(d, ask("k")); res.RetryIn <= 0 {
		t.Errorf("refused: %+v", res)
	}
	if known := w.admin.HGet(w.ctx, d.names("k").places, "?").Val(); !strings.HasPrefix(known, "150 ") {
		t.Errorf("it is known that %q are passed over, want 150", known)
	}
}

// A strike from before the server's clock was set back says nothing about a place.
func TestStrikeAheadOfTheClock(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b).
		do("HSET", d.names("k").places, "!", fmt.Sprintf("%s %013d;", d.inboxName(), w.micros()/1000+3600_000)).
		on(w.driver(nil)).release(a).on(d).has(b)
}

// A sign of life from before the clock was set back is none: a strike since then counts.
func TestContactAheadOfTheClock(t *testing.T) {
	w, d, dead := newTwo(t)
	a, gone, b := ask("k"), ask("k"), ask("k")
	w.on(d).grant(a).on(dead).wait(gone).on(d).wait(b)
	places := d.names("k").places
	place := strings.SplitN(w.admin.HGet(w.ctx, places, gone.Owner).Val(), " ", 2)
	w.do("HSET", places, gone.Owner, fmt.Sprintf("%013d %s", w.micros()/1000+3600_000, place[1]))
	w.strike("k", dead)
	w.on(d).release(a).has(b)
}

// One that asks when the search for the next was cut short asks again soon.
func TestSearchIsCutShort(t *testing.T) {
	w, d, dead := newTwo(t)
	b := ask("k")
	w.grant(d, ask("k"))
	w.many(dead, "k", 1500, "c", w.micros()/1000)
	w.wait(d, b)
	w.strike("k", dead)
	w.do("DEL", "lock:k")
	if res := w.refuse(d, queued(b)); res.RetryIn != moreAfter {
		t.Errorf("it asks again after %v, want %v", res.RetryIn, moreAfter)
	}
}

// Strikes are kept for 51 inboxes, the latest.
func TestStrikesAreBounded(t *testing.T) {
	w, d := newPlain(t)
	gone := w.driver(nil)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).on(gone).wait(ask("k"))
	w.succeeds(gone.Close())
	w.subscribed(gone, 0)
	w.wait(d, b)
	var strikes strings.Builder
	for i := range 80 {
		fmt.Fprintf(&strikes, "%sinbox:%d %013d;", wire.Sidecars, i, w.micros()/1000)
	}
	w.on(d).do("HSET", d.names("k").places, "!", strikes.String()).release(a)
	if got := strings.Split(w.admin.HGet(w.ctx, d.names("k").places, "!").Val(), ";"); len(got) != 52 || !strings.HasPrefix(got[0], gone.inboxName()+" ") {
		t.Errorf("%d strikes, the first %q", len(got)-1, got[0])
	}
}

// The first in the queue gives up beside readers: the next one looks after them now.
func TestNextLooksAfterReaders(t *testing.T) {
	w, d := newPlain(t)
	first, next := ask("k"), ask("k")
	w.on(d).grant(reader("k")).wait(first)
	hints := w.wait(d, next)
	w.on(d).release(first).hint(hints)
}

// Which places are passed over is known for a second, and not to one of them that asks.
func TestPassedOverForASecond(t *testing.T) {
	for name, c := range map[string]struct {
		at   time.Duration // when it was known, from now on
		asks bool          // the second place, which is alive
	}{
		"long ago":                   {at: -2 * time.Second},
		"before the clock went back": {at: time.Hour},
		"to one of them":             {asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, d, dead := newTwo(t)
			a, b := ask("k"), ask("k")
			w.on(d).grant(a).on(dead).wait(ask("k")).on(d).wait(b).on(w.driver(nil)).wait(ask("k"))
			w.strike("k", dead)
			w.do("HSET", d.names("k").places, "?", fmt.Sprintf("2 %013d", w.micros()/1000+uint64(c.at.Milliseconds())))
			if c.asks {
				w.on(d).do("DEL", "lock:k", d.names("k").grant).claim(b)
			} else if w.release(d, a); w.holder(d, "k") != b.Owner {
				t.Errorf("the key went to %q", w.holder(d, "k"))
			}
		})
	}
}

// An owner whose place was lost, but for its number, is still the first.
func TestFirstWithoutItsPlace(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b).on(w.driver(nil)).wait(ask("k")).do("HDEL", d.names("k").places, b.Owner).
		do("DEL", "lock:k", d.names("k").grant).on(d).claim(b)
}

// Numbers without their places are at the end of a queue that is too long to be searched.
func TestNumbersWithoutPlacesAtTheEnd(t *testing.T) {
	for _, n := range []int{5, 120} {
		w, d, dead := newTwo(t)
		a := ask("k")
		w.grant(d, a)
		w.many(dead, "k", 1500, "c", w.micros()/1000)
		w.do("ZADD", d.names("k").queue, 0.5, value(ask("k").Claim()))
		for i := range n {
			w.do("ZADD", d.names("k").queue, 1400.5+float64(20*i), value(ask("k").Claim()))
		}
		w.strike("k", dead)
		w.release(d, a)
	}
}

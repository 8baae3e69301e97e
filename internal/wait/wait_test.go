// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/lifetime"
)

var (
	errAway = errors.New("away")
	errHeld = errors.New("held")
)

// newWait is an attempt for 30 s, which may enter.
func newWait() *Wait {
	w := New(&Terms{TTL: 30 * time.Second, Patience: 9 * time.Second, Call: call, Silence: time.Minute, Grace: 20 * time.Second}, true)
	return &w
}

// refuse answers a Try of a second.
func refuse(w *Wait, res driver.Result) {
	w.Asks(at(time.Minute))
	w.Refused(at(time.Minute), at(61*time.Second), res, errHeld)
}

// way is what an attempt does, step by step: each event, and what is to be done then; j where the next Try joins.
func way(w *Wait, events string) (did string) {
	do := func() {
		did += map[Do]string{Ask: "ask", WatchBriefly: "watch briefly", Watch: "watch", Sleep: "sleep"}[w.Next()]
		if w.Next() == Ask && w.Queue() {
			did += " j"
		}
		did += "; "
	}
	for e := range strings.FieldsSeq(events) {
		switch e {
		case "begin":
			w.Begin(false, false)
		case "busy":
			w.Begin(false, true)
		case "joins":
			w.Begin(true, false)
		case "both":
			w.Begin(true, true)
		case "refused":
			refuse(w, driver.Result{})
		case "failed":
			w.Asks(at(time.Minute))
			_ = w.Failed(at(61*time.Second), Away, errAway)
		case "watched":
			did += map[bool]string{true: "wakes, "}[w.Watched(true)]
		case "deaf":
			did += map[bool]string{true: "wakes, "}[w.Watched(false)]
		case "unwatched":
			w.Unwatched()
		case "woke":
			w.Woke(at(62 * time.Second))
		}
		do()
	}
	return strings.TrimSuffix(did, "; ")
}

// It asks without the queue, watches, joins, and sleeps; a key that it is likely to wait for is joined at once.
func TestWay(t *testing.T) {
	for _, c := range []struct{ events, want string }{
		{"begin refused watched refused woke refused", "ask; watch; ask j; sleep; ask j; sleep"},
		{"begin refused deaf refused watched woke", "ask; watch; ask j; sleep; wakes, sleep; ask j"},
		{"begin refused deaf refused deaf", "ask; watch; ask j; sleep; sleep"},
		{"begin failed woke refused watched", "ask; sleep; ask; watch; ask j"},
		{"begin refused watched failed woke", "ask; watch; ask j; sleep; ask j"},
		{"joins refused watched woke", "ask j; watch; sleep; ask j"},
		{"joins refused deaf woke", "ask j; watch; sleep; ask j"},
		{"both refused", "ask j; watch"},
		{"busy watched refused", "watch briefly; ask j; sleep"},
		{"busy deaf refused refused", "watch briefly; ask; ask j; sleep"},
		{"busy unwatched refused watched", "watch briefly; ask; watch; ask j"},
		{"begin refused watched begin", "ask; watch; ask j; ask j"},
	} {
		if got := way(newWait(), c.events); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.events, got, c.want)
		}
	}
}

// How long it sleeps: a third of its patience without hints, its patience with them, unless the store says when.
func TestUntil(t *testing.T) {
	for _, c := range []struct {
		name   string
		hints  bool
		retry  time.Duration
		failed bool
		want   time.Duration
	}{
		{"hints come", true, 0, false, 9 * time.Second},
		{"the store says when", true, time.Second, false, time.Second},
		{"the store says when, later", true, time.Minute, false, time.Minute},
		{"no hints come", false, 0, false, 3 * time.Second},
		{"no hints come, and the store says when", false, time.Second, false, time.Second},
		{"no hints come, and the store says when, later", false, time.Minute, false, 3 * time.Second},
	} {
		w := newWait()
		w.Watched(c.hints)
		refuse(w, driver.Result{RetryIn: c.retry})
		if got := w.Until(at(time.Hour)) - time.Hour; got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	for _, hints := range []bool{true, false} {
		w := newWait()
		w.Watched(hints)
		_ = w.Failed(at(time.Minute), Away, errAway)
		if got := w.Until(at(time.Hour)) - time.Hour; got <= 0 || got > time.Second {
			t.Errorf("after an error, hints %v: %v", hints, got)
		}
	}
}

// What a sign of life learns ends a sleep, shortens it or puts it off.
func TestLearn(t *testing.T) {
	const asked, until = 61 * time.Second, 70 * time.Second // when the latest Try was answered, and the sleep ends
	for _, c := range []struct {
		name   string
		n      News
		hints  bool
		failed bool
		until  time.Duration // 0: it wakes
	}{
		{"earlier", News{Asked: asked, At: until - 1}, true, false, until - 1},
		{"later", News{Asked: asked, At: until + 1}, true, false, until + 1},
		{"earlier, of before the answer", News{Asked: asked - 1, At: until - 1}, true, false, until - 1},
		{"later, of before the answer", News{Asked: asked - 1, At: until + 1}, true, false, until},
		{"gone", News{Asked: asked, At: until, Gone: true}, true, false, 0},
		{"gone, of before the answer", News{Asked: asked - 1, At: until, Gone: true}, true, false, 0},
		{"without hints", News{Asked: asked, At: until + 1}, false, false, 0},
		{"without hints, of before the answer", News{Asked: asked - 1, At: until - 1}, false, false, until - 1},
		{"after an error", News{Asked: asked, At: until - 1}, true, true, until},
		{"after an error, without hints", News{Asked: asked, At: until - 1}, false, true, until},
		{"gone, after an error", News{Asked: asked, At: until, Gone: true}, true, true, 0},
	} {
		w := newWait()
		w.Join()
		w.Watched(c.hints)
		refuse(w, driver.Result{RetryIn: time.Second})
		if c.failed {
			_ = w.Failed(at(asked), Away, errAway)
		}
		w.Until(at(asked))
		w.until = until
		if got, wakes := w.Learn(c.n); wakes != (c.until == 0) || got != c.until {
			t.Errorf("%s: until %v, wakes %v", c.name, got, wakes)
		}
	}
}

// A waiter enters on a handover of after its latest refusal that leaves it two thirds of the TTL, and counts
// from before that refusal.
func TestEnter(t *testing.T) {
	const ttl = 30 * time.Second
	fresh := driver.Handover{Fence: 8, At: 1001 * time.Second, TTL: ttl}
	for _, c := range []struct {
		name   string
		change func(w *Wait)
		to     driver.Handover
		now    time.Duration
		enters bool
	}{
		{"fresh", func(*Wait) {}, fresh, 62 * time.Second, true},
		{"no hint", func(*Wait) {}, driver.Handover{}, 62 * time.Second, false},
		{"it may not", func(w *Wait) { w.enters = false }, fresh, 62 * time.Second, false},
		{"a Try may come late", func(w *Wait) { w.Unanswered(true) }, fresh, 62 * time.Second, false},
		{"the store does not tell its time", func(w *Wait) { w.seen.at = 0 }, driver.Handover{Fence: 8, At: time.Second, TTL: ttl}, 62 * time.Second, false},
		{"of the refusal's own holder", func(*Wait) {}, driver.Handover{Fence: 7, At: fresh.At, TTL: ttl}, 62 * time.Second, false},
		{"of before the refusal, by a clock that was set", func(*Wait) {}, driver.Handover{Fence: 8, At: 999 * time.Second, TTL: ttl}, 62 * time.Second, true},
		{"of long before it", func(*Wait) {}, driver.Handover{Fence: 8, At: 990 * time.Second, TTL: ttl}, 62 * time.Second, false},
		{"at the refusal", func(*Wait) {}, driver.Handover{Fence: 8, At: 1000 * time.Second, TTL: ttl}, 62 * time.Second, true},
		{"of the future", func(*Wait) {}, driver.Handover{Fence: 8, At: 1002*time.Second + 1, TTL: ttl}, 62 * time.Second, false},
		{"just now", func(*Wait) {}, driver.Handover{Fence: 8, At: 1002 * time.Second, TTL: ttl}, 62 * time.Second, true},
		{"a message that was just fast enough", func(*Wait) {}, fresh, 61*time.Second + 10*time.Second - lifetime.Drift(time.Second) - lifetime.Drift(ttl), true},
		{"a slow message", func(*Wait) {}, fresh, 61*time.Second + 10*time.Second - lifetime.Drift(time.Second) - lifetime.Drift(ttl) + 1, false},
		{"a large lead", func(w *Wait) { w.terms.Lead = ttl - 3*time.Second }, fresh, 63 * time.Second, false},
	} {
		w := newWait()
		refuse(w, driver.Result{At: 1000 * time.Second, Fence: 7})
		c.change(w)
		w.Hinted(driver.Hint{Handover: c.to})
		w.Hinted(driver.Hint{Handover: driver.Handover{Fence: c.to.Fence - min(c.to.Fence, 1), At: 1001 * time.Second, TTL: ttl}}) // an older one
		w.next = Sleep
		e, ok := w.Woke(at(c.now))
		if ok != c.enters || w.Next() != Ask {
			t.Errorf("%s: enters is %v", c.name, ok)
		}
		since := c.to.At - 1000*time.Second
		if ok && (e.Fence != 8 || e.From != at(time.Minute+since-lifetime.Drift(since)) || e.Took != max(c.now-time.Minute-since, 1) || e.Marked) {
			t.Errorf("%s: %+v", c.name, e)
		}
	}
	for _, of := range []string{"grant", "handover"} {
		w := newWait()
		w.Granted(of == "grant")
		refuse(w, driver.Result{At: 1000 * time.Second, Fence: 7})
		to := fresh
		to.Abandoned = of == "handover"
		w.Hinted(driver.Hint{Handover: to})
		if e, ok := w.Woke(at(62 * time.Second)); !ok || !e.Marked {
			t.Errorf("the mark of a %s: %+v", of, e)
		}
	}
}

// What an attempt without a lease leaves in the store is known.
func TestLeft(t *testing.T) {
	for _, c := range []struct {
		name                     string
		change                   func(w *Wait)
		something, lost, settled bool
	}{
		{"nothing was asked", func(*Wait) {}, false, false, true},
		{"refused", func(w *Wait) { refuse(w, driver.Result{}) }, false, false, true},
		{"refused, and joined", func(w *Wait) { w.Join(); refuse(w, driver.Result{}) }, true, false, true},
		{"granted", func(w *Wait) { w.Granted(false) }, true, false, true},
		{"not sent", func(w *Wait) { _ = w.Failed(at(0), Away, errAway) }, false, false, true},
		{"refused by the store", func(w *Wait) { w.Unanswered(true) }, true, false, false},
		{"not answered", func(w *Wait) { w.Unanswered(false) }, true, true, false},
		{"not answered, and then refused", func(w *Wait) { w.Unanswered(false); w.Unanswered(true) }, true, true, false},
	} {
		w := newWait()
		c.change(w)
		if something, lost := w.Left(); something != c.something || lost != c.lost || w.Settled() != c.settled {
			t.Errorf("%s: something %v, lost %v, settled %v", c.name, something, lost, w.Settled())
		}
		if w.Enters() != c.settled {
			t.Errorf("%s: the next Try enters: %v", c.name, w.Enters())
		}
	}
}

// A grant that came late is asked for once more, in the queue.
func TestAskAgain(t *testing.T) {
	w := newWait()
	if w.AskAgain() {
		t.Error("without the queue")
	}
	w.Join()
	if !w.AskAgain() || w.AskAgain() || w.AskAgain() {
		t.Error("not once")
	}
}

// A mark that a grant told of stays.
func TestMarked(t *testing.T) {
	w := newWait()
	if w.Granted(false) || !w.Granted(true) || !w.Granted(false) {
		t.Error("not as it was told")
	}
}

// The store is to blame for a call that outlasts its answers, and for the first.
func TestOutlasts(t *testing.T) {
	const trip = time.Second
	w := newWait()
	if !w.Outlasts(0, trip) {
		t.Error("nothing was heard")
	}
	refuse(w, driver.Result{})                                                                 // took a second
	w.Refused(at(time.Hour), at(time.Hour+time.Second/2), driver.Result{Keeps: true}, errHeld) // less
	if w.Outlasts(2*time.Second-1, trip) || !w.Outlasts(2*time.Second, trip) || w.Slowest() != time.Second || !w.Kept() {
		t.Errorf("the slowest took %v, kept %v", w.Slowest(), w.Kept())
	}
	if w.Blame(errAway); !errors.Is(w.Why(), errAway) {
		t.Error(w.Why())
	}
	w.Asks(at(time.Hour))
	if err := w.Failed(at(time.Hour), Away, errAway); err != nil || w.Outlasts(time.Minute, trip) {
		t.Errorf("it hides an error: %v", err)
	}
}

// A call that had only the rest of the silence, and used it up, does not hide the error before it. Any other call does.
func TestCutShort(t *testing.T) {
	errLast := errors.New("no time")
	for _, c := range []struct {
		name         string
		second, took time.Duration // when the second call began; for how long it was under way
		want         error
	}{
		{"cut short", 58 * time.Second, 2 * time.Second, errAway},
		{"it ended before that", 58 * time.Second, 2*time.Second - 1, errLast},
		{"it had as long as any", 55 * time.Second, call, errLast},
	} {
		w := newWait()
		limit := w.Asks(at(0))
		if err := w.Failed(at(limit), Away, errAway); err != nil {
			t.Fatal(err)
		}
		w.due = at(c.second) // the calls between
		w.Asks(at(c.second))
		if err := w.Failed(at(c.second+c.took), Away, errLast); !errors.Is(err, c.want) || !errors.Is(w.Why(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// An error ends the attempt at once, or once its bound is reached; until then it is known for how long it is borne.
func TestFailed(t *testing.T) {
	w := newWait()
	if err := w.Failed(at(0), Permanent, errAway); !errors.Is(err, errAway) || !errors.Is(w.Why(), errAway) || w.Failing() {
		t.Errorf("%v, %v", err, w.Why())
	}
	for _, c := range []struct {
		kind Trouble
		most time.Duration
	}{{Away, time.Minute}, {Rejects, 20 * time.Second}, {Unclear, 30 * time.Second}} {
		w := newWait()
		now := at(time.Hour)
		var err error
		for err == nil {
			now = now.Add(w.Asks(now) / 4)
			if err = w.Failed(now, c.kind, errAway); err == nil {
				if left, want := w.Bears(now), c.most-now.Sub(at(time.Hour)); left < want || left > want+call || !w.Failing() {
					t.Errorf("%d: borne for %v more, not %v", c.kind, left, want)
				}
				now.Mono, now.Wall = w.Until(now), w.until
			}
		}
		if took := now.Sub(at(time.Hour)); took > c.most+call || took < c.most-call || !errors.Is(err, errAway) {
			t.Errorf("%d: it ended after %v: %v", c.kind, took, err)
		}
	}
	endless := New(&Terms{TTL: 30 * time.Second, Call: call}, true)
	endless.Asks(at(0))
	if err := endless.Failed(at(time.Hour), Away, errAway); err != nil || endless.Bears(at(time.Hour)) != 0 {
		t.Errorf("without a bound: %v, %v", err, endless.Bears(at(time.Hour)))
	}
}

// A caller that goes on with the wait of another bears what is left of it, as far as it has waited itself.
func TestInherit(t *testing.T) {
	for _, c := range []struct {
		from time.Duration
		ends bool
	}{{0, true}, {59 * time.Second, false}} {
		w := newWait()
		w.Asks(at(0))
		_ = w.Failed(at(58*time.Second), Away, errAway)
		w.silent, w.due = at(0), at(2*time.Minute)
		if err := w.Inherit(at(c.from), at(61*time.Second)); (err != nil) != c.ends {
			t.Errorf("since %v: %v", c.from, err)
		}
	}
	if err := newWait().Inherit(at(0), at(time.Hour)); err != nil {
		t.Errorf("all was well: %v", err)
	}
}

// Whatever happens: it sleeps for its patience at most, unless the store says when; it never leaves the queue; and a store that
// gives no good answer is borne for no longer than the terms say.
func TestRandomWaits(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		w, now, joined := newWait(), at(time.Hour), false
		w.Begin(r.IntN(4) == 0, r.IntN(4) == 0)
		good := now // when the latest good answer came
	steps:
		for i := range 80 {
			joined = joined || w.Queue()
			if joined && !w.Queue() {
				t.Fatalf("seed %d, step %d: it left the queue", seed, i)
			}
			if now.Sub(good) > w.terms.Silence+call {
				t.Fatalf("seed %d, step %d: no good answer for %v", seed, i, now.Sub(good))
			}
			switch w.Next() {
			case WatchBriefly:
				if r.IntN(2) == 0 {
					w.Unwatched()
				} else {
					w.Watched(r.IntN(2) == 0)
				}
			case Watch:
				w.Watched(r.IntN(2) == 0)
			case Ask:
				start := now
				limit := w.Asks(start)
				if limit > call {
					t.Fatalf("seed %d, step %d: a Try may take %v", seed, i, limit)
				}
				now = now.Add(time.Duration(r.Int64N(int64(limit) + 1)))
				if r.IntN(3) > 0 {
					w.Refused(start, now, driver.Result{RetryIn: time.Duration(r.IntN(2)) * time.Second}, errHeld)
					good = now
				} else if err := w.Failed(now, Away, errAway); err != nil {
					break steps
				}
			case Sleep:
				until := w.Until(now)
				if until <= now.Mono || until > now.Mono+w.terms.Patience {
					t.Fatalf("seed %d, step %d: it sleeps for %v", seed, i, until-now.Mono)
				}
				if !w.Failing() {
					good = now.Add(until - now.Mono)
				}
				now = now.Add(until - now.Mono)
				w.Woke(now)
			}
		}
	}
}

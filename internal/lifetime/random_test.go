// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// walk has one Lifetime live through random events, beside what the store and the caller know of it.
type walk struct {
	r   *rand.Rand
	l   Lifetime
	now clock.Instant

	until    time.Duration   // until when the store keeps the lease
	sent     []clock.Instant // renewals without an answer
	sum      int             // of the changes to the number of held leases
	modes    []bool          // of the caller's leases: whether they write
	running  int             // functions of Do
	panicked bool            // one of them did
	told     int             // how often the store is to be told of the end
	last     string
}

// step does one thing that can happen.
func (w *walk) step() {
	l := &w.l
	switch w.r.IntN(12) {
	case 0, 1, 2:
		w.last = "time passes"
		w.now = w.now.Add(time.Duration(w.r.IntN(3000)) * time.Millisecond)
	case 3, 4:
		w.last = "the renewer looks"
		switch renew, over := l.Due(w.now, w.r.IntN(4) == 0); {
		case over && l.Stands():
			l.End(Lost, l.WhyLost(w.now, nil))
			w.sum += l.Ended(false)
		case renew:
			w.sent = append(w.sent, w.now)
		}
	case 5, 6:
		if len(w.sent) > 0 {
			w.answer()
		}
	case 7:
		if l.Stands() {
			w.last = "one more lease"
			write := w.r.IntN(2) == 0 && l.writers > 0
			l.Add(write)
			w.modes = append(w.modes, write)
			if w.r.IntN(2) == 0 && l.Run() == nil {
				w.running++
			}
		}
	case 8, 9:
		if n := len(w.modes); n > 0 {
			w.release(w.modes[n-1])
			w.modes = w.modes[:n-1]
		}
	case 10:
		if n := len(w.modes); n > 0 {
			w.last = "downgraded"
			if ask, _ := l.Convert(w.modes[n-1], false); ask {
				w.modes[n-1] = false
				if w.r.IntN(2) == 0 {
					w.until = max(w.until, w.now.Mono+l.TTL())
					l.Converted(w.now, w.now, l.TTL())
				}
			}
		}
	case 11:
		if w.r.IntN(8) == 0 {
			w.last = "closed"
			if ended, _ := l.End(Closed, driver.ErrClosed); ended {
				w.sum += l.Ended(true)
			}
		}
	}
}

// answer answers a renewal: the oldest, or a later one.
func (w *walk) answer() {
	i := w.r.IntN(len(w.sent))
	start := w.sent[i]
	w.sent = append(w.sent[:i], w.sent[i+1:]...)
	res := driver.Renewal{TTL: w.l.TTL() / time.Duration(1+w.r.IntN(2)), Wanted: w.r.IntN(4) == 0}
	switch {
	case w.r.IntN(4) == 0:
		res = driver.Renewal{Err: errTrouble}
	case start.Mono > w.until: // the store does not know it any more
		res = driver.Renewal{Err: driver.ErrNotHeld}
	default:
		w.until = max(w.until, start.Mono+res.TTL)
	}
	w.last = fmt.Sprintf("an answer after %v: %v", w.now.Sub(start), res.Err)
	switch a := w.l.Renewed(start, w.now, res); a {
	case Late, Gone:
		if ended, _ := w.l.End(Lost, w.l.WhyLost(w.now, res.Err)); ended {
			w.sum += w.l.Ended(false)
		}
	}
}

// release releases one lease, of a function of Do or not.
func (w *walk) release(write bool) {
	ran := w.running > 0 && w.r.IntN(2) == 0
	end := driver.EndFinished
	if ran {
		w.running--
		if w.r.IntN(4) == 0 {
			end, w.panicked = driver.EndUnfinished, true
		}
	}
	w.last = fmt.Sprintf("released, as %v", end)
	was := w.l.State()
	if left, how := w.l.Release(write, false, ran, end); left == Last {
		w.told++
		w.l.Released()
		w.sum += w.l.Ended(true)
		if out := w.l.Outcome(how); out == driver.EndFinished && (w.panicked || !was.stands()) {
			panic(fmt.Sprintf("after %d it is told as %v", was, out))
		}
	}
}

// Whatever happens: the holder never relies on the lease for longer than the store keeps it, nothing stands again, the sum of
// the events is exact, and the store is told of the end once.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(3000) {
		w := &walk{r: rand.New(rand.NewPCG(seed, 1)), now: at(time.Second), until: 11 * time.Second, modes: []bool{true}}
		terms := &Terms{TTL: 10 * time.Second, Lead: time.Duration(w.r.IntN(2)) * time.Second, NoRenew: w.r.IntN(8) == 0}
		if w.r.IntN(4) == 0 {
			terms.MaxHold = 25 * time.Second
		}
		w.l = New(terms, w.now, Facts{Settled: true})
		w.l.Grant(w.now, w.now, terms.TTL)
		w.l.Give(w.now)
		w.l.Add(true)
		w.sum = w.l.Began()
		stood := true
		for i := range 60 {
			w.step()
			relies := w.l.Stands() && !w.l.Over(w.now)
			held := 0
			if w.l.Stands() {
				held = 1
			}
			switch {
			case relies && w.now.Mono >= w.until:
				t.Fatalf("seed %d, step %d (%s): relied on at %v, and the store keeps it until %v", seed, i, w.last, w.now.Mono, w.until)
			case w.l.Stands() && !stood:
				t.Fatalf("seed %d, step %d (%s): it stands again", seed, i, w.last)
			case w.sum != held:
				t.Fatalf("seed %d, step %d (%s): %d leases are counted in state %d", seed, i, w.last, w.sum, w.l.State())
			case w.told > 1:
				t.Fatalf("seed %d, step %d (%s): the store is told %d times", seed, i, w.last, w.told)
			}
			stood = w.l.Stands()
		}
	}
}

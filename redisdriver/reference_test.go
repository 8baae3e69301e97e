// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// Whatever the requests, in whatever order, this engine and the reference
// engine answer the same: who is granted what, in which queue, who gets a hint of a
// holder that did not finish. What is stored expires, at every step. No time passes here.
func TestAgreesWithTheReference(t *testing.T) {
	t.Parallel()
	for _, node := range []bool{false, true} {
		t.Run(fmt.Sprintf("node=%v", node), func(t *testing.T) {
			t.Parallel()
			w, clock := frozen(t)
			d := w.driver(nil)
			if node {
				d = w.node()
			}
			for range 60 {
				seed := rand.Uint64()
				w.do("FLUSHALL")
				if node {
					w.admit(d)
				}
				if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
					w.compare(t, d, memdriver.NewNode(memdriver.NodeOptions{Now: clock.now}), node, seed)
				}) {
					return
				}
			}
		})
	}
}

// compare does the same on both engines, and compares after each step.
func (w *world) compare(t *testing.T, d *Driver, mem *memdriver.Store, node bool, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	owners := make([]contend.Owner, 7)
	for i := range owners {
		owners[i] = one(rnd)
	}
	base := w.micros() + 1_000_000
	before := ask("before") // a fresh store takes its first fence from the clock
	before.Fence, before.Settled = base-500_000, true
	_, _ = tried(contend.Try(w.ctx, mem, before)), contend.Release(w.ctx, mem, before)
	granted := map[string]bool{}
	var trace []string
	for range 60 {
		i := rnd.IntN(len(owners))
		r := owners[i]
		var what, ours, reference string
		switch rnd.IntN(10) {
		case 0, 1, 2, 3, 4:
			r.Queue = rnd.IntN(3) > 0
			if node { // about a second ahead, so that no clock decides
				r.Fence = base + uint64(rnd.IntN(1000))
				r.Raise, r.Restore = rnd.IntN(4) == 0, rnd.IntN(6) == 0
			}
			what = "try"
			ours, reference = tried(contend.Try(w.ctx, seen(d), r)), tried(contend.Try(w.ctx, mem, r))
			granted[r.Owner] = granted[r.Owner] || strings.HasPrefix(ours, "granted")
			if ours == tooLow { // whether it waits then is the engine's own affair
				r.Settled, r.End = true, driver.EndUnused
				_, _ = contend.Release(w.ctx, seen(d), r), contend.Release(w.ctx, mem, r)
				owners[i] = one(rnd)
			}
		case 5:
			r.Convert, r.Mode = true, driver.Shared
			r.Limit = rnd.IntN(2) * rnd.IntN(4)
			what = "convert"
			ours, reference = tried(contend.Try(w.ctx, seen(d), r)), tried(contend.Try(w.ctx, mem, r))
			if strings.HasPrefix(ours, "granted") {
				owners[i].Mode, owners[i].Limit = r.Mode, r.Limit
			}
		case 6:
			r.Queue = rnd.IntN(2) == 0
			what = "renew"
			ours, reference = w.renewal(d, r), w.renewal(mem, r)
		default:
			r.Settled = rnd.IntN(3) > 0
			r.End = driver.EndUnused // the fast path takes Finished at its word
			if granted[r.Owner] {
				r.End = driver.End(rnd.IntN(3))
			}
			what = "release"
			ours, reference = fmt.Sprint(contend.Release(w.ctx, seen(d), r) == nil), fmt.Sprint(contend.Release(w.ctx, mem, r) == nil)
			owners[i] = one(rnd)
		}
		trace = append(trace, fmt.Sprintf("%s %s %v/%d queue=%v end=%d fence=%d: %s", what, r.Owner[:4], r.Mode, r.Limit, r.Queue, r.End, r.Fence, ours))
		if ours != reference {
			t.Fatalf("here %s\nreference %s\nafter\n%s", ours, reference, strings.Join(trace, "\n"))
		}
		w.mortal(t)
		if a, b := w.shown(d), w.shown(mem); a != b {
			t.Fatalf("here %s\nreference %s\nafter\n%s", a, b, strings.Join(trace, "\n"))
		}
	}
}

func one(rnd *rand.Rand) contend.Owner {
	r := ask("k")
	r.Patience = r.TTL
	switch rnd.IntN(3) {
	case 0:
		r.Mode = driver.Shared
	case 1:
		r.Mode, r.Limit = driver.Shared, 1+rnd.IntN(4)
	}
	return r
}

func tried(res driver.Result, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case res.Granted:
		return fmt.Sprintf("granted slot %d abandoned %v", res.Slot, res.Abandoned)
	}
	if res.Why == voting.FenceTooLow {
		return tooLow
	}
	return fmt.Sprintf("refused %d ahead %d", res.Why, res.Ahead)
}

const tooLow = "fence too low"

func (w *world) renewal(d driver.Driver, r contend.Owner) (s string) {
	contend.Renew(w.ctx, d, []contend.Owner{r}, func(_ int, a driver.Renewal) {
		s = fmt.Sprintf("%v, wanted %v", a.Err, a.Wanted)
		if errors.Is(a.Err, driver.ErrNotHeld) {
			s = "not held"
		}
	})
	return s
}

// shown is what Inspect and List say of the key.
func (w *world) shown(d driver.Driver) string {
	w.Helper()
	info, err := d.Inspect(w.ctx, "k")
	w.succeeds(err)
	var b strings.Builder
	fmt.Fprintf(&b, "%d hold", info.Leases)
	holds := make([]string, len(info.Holders))
	for i, h := range info.Holders {
		if h.Left < 20*time.Second {
			h.Left = 0 // not claimed: each engine has its own time for that
		}
		holds[i] = fmt.Sprintf(" %s(%d/%d slot %d)", h.Holder.Owner[:4], h.Holder.Mode, h.Holder.Limit, h.Holder.Slot)
	}
	slices.Sort(holds) // of one moment, in no order
	fmt.Fprint(&b, holds, " wait")
	for _, h := range info.Queue {
		fmt.Fprintf(&b, " %s(%d/%d)", h.Owner[:4], h.Mode, h.Limit)
	}
	for info, err := range d.List(w.ctx, "") {
		fmt.Fprintf(&b, " listed %s %d %d %v", info.Key, info.Leases, info.Waiters, err)
	}
	return b.String()
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/ballot"
	"github.com/hasplock/hasp/internal/contend"
)

// heldBy is an owner with a lease, and what renews it.
func heldBy(t *testing.T, d *Driver, r contend.Owner) driver.RenewRequest {
	t.Helper()
	res := granted(t, d, r)
	synctest.Wait()
	return driver.RenewRequest{Claim: r.Claim(), TTL: ruleTTL, Fence: res.Fence}
}

func renewOne(ctx context.Context, d *Driver, r driver.RenewRequest) (res driver.Renewal) {
	d.Renew(ctx, []driver.RenewRequest{r}, func(_ int, a driver.Renewal) { res = a })
	return res
}

// Whose ballot a renewal belongs to: that of its owner, whatever its fence; a new one for the
// lease of another process, if its fence is known, and none otherwise.
func TestBallotOfARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		r := heldBy(t, d, asks("k"))
		known := d.owners.get(r.Claim)
		for _, fence := range []uint64{r.Fence, 0} {
			if r.Fence = fence; d.renewedOwner(r) != known {
				t.Errorf("fence %d: it is not its owner's", fence)
			}
		}
		other := driver.RenewRequest{Claim: asks("k").Claim(), TTL: ruleTTL}
		if o := d.renewedOwner(other); o != nil || d.owners.get(other.Claim) != nil {
			t.Error("a lease without a fence has a ballot")
		}
		other.Fence = 7
		if o := d.renewedOwner(other); o == nil || o.fence() != 7 || d.owners.get(other.Claim) != o {
			t.Error("a lease of another process has none")
		}
	})
}

// Nodes have as long as the caller waits, or ten seconds, if they say anything at all. One
// that is out of service is not asked.
func TestHowLongARenewalMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		time.Sleep(time.Minute)
		for name, c := range map[string]struct{ deadline, want time.Duration }{
			"without a deadline": {0, renewLimit},
			"with one":           {3 * time.Second, 3 * time.Second},
			"which is over":      {-time.Second, time.Millisecond},
		} {
			ctx := t.Context()
			if c.deadline != 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, time.Now().Add(c.deadline))
				defer cancel()
			}
			for _, s := range all {
				s.renew = func(ctx context.Context, _ driver.RenewRequest) driver.Renewal {
					<-ctx.Done()
					return driver.Renewal{Err: ctx.Err()}
				}
			}
			w := &renewing{d: d, ctx: ctx, done: func(int, driver.Renewal) {}, over: make(chan struct{}), all: []renewal{{Renewal: ballot.NewRenewal(3)}}}
			before := all[2].renews.Load()
			f := w.send(setOf(0, 1), []driver.RenewRequest{{TTL: ruleTTL}})
			got := f.until - f.begun
			failIf(t, got != c.want, "%s: %v, want %v", name, got, c.want)
			f.cancel()
			if synctest.Wait(); all[2].renews.Load() != before {
				t.Errorf("%s: a node is asked that is out of service", name)
			}
		}
	})
}

// The answer of the queue node, which knows who waits, is waited for; and once it has no more
// to say, what the majority said counts. Nothing is reported after the Renew has returned.
func TestWhatARenewalWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		var got []driver.Renewal
		w := &renewing{d: d, ctx: t.Context(), done: func(_ int, r driver.Renewal) { got = append(got, r) }, queue: d.nodes[0], left: 1, over: make(chan struct{}),
			all: []renewal{{Renewal: ballot.NewRenewal(3)}}}
		yes := driver.Renewal{TTL: ruleTTL}
		w.answer(d.nodes[1], 0, yes)
		w.answer(d.nodes[2], 0, yes)
		if w.ended(d.nodes[1]); len(got) != 0 || w.queue != d.nodes[0] {
			t.Errorf("%v, and the queue node has yet to answer", got)
		}
		if w.ended(d.nodes[0]); len(got) != 1 || got[0].Err != nil {
			t.Errorf("%v, want one renewal", got)
		}
		late := &renewing{d: d, ctx: t.Context(), done: func(int, driver.Renewal) { t.Error("reported too late") }, left: 1, over: make(chan struct{}),
			all: []renewal{{Renewal: ballot.NewRenewal(3)}}, shut: true}
		late.answer(d.nodes[1], 0, yes)
		late.answer(d.nodes[2], 0, yes)
	})
}

// What each node is said to have answered when too few prolonged a lease.
func TestWhyALeaseWasNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		w := &renewing{d: d, ctx: t.Context(), left: 1, all: []renewal{{Renewal: ballot.NewRenewal(3)}}}
		w.answer(d.nodes[0], 0, driver.Renewal{Err: errDenied})
		w.answer(d.nodes[1], 0, driver.Renewal{Err: driver.ErrNotHeld})
		got := w.all[0].silence(d)
		failIf(t, got != [maxNodes]error{errDenied, errVoteGone, errSilent}, "%v", got)
		w.answer(d.nodes[2], 0, driver.Renewal{TTL: ruleTTL})
		w.done = func(int, driver.Renewal) {}
		got = w.all[0].silence(d)
		failIf(t, got != [maxNodes]error{errDenied, errVoteGone}, "with a vote of node 3: %v", got)
	})
}

// Who is asked for a lost vote, or told of a conversion: nodes that answered, of a lease whose
// fence and owner are known. A silent node is told nothing.
func TestWhoIsAskedForALostVote(t *testing.T) {
	for name, c := range map[string]struct {
		said      error // of node 3, to the renewal
		fence     bool  // the renewal names it
		converted bool
		out       bool // node 3 is, when the others have answered
		asked     int64
	}{
		"it lost its vote":                   {driver.ErrNotHeld, true, false, false, 1},
		"it lost its vote, and is away":      {driver.ErrNotHeld, true, false, true, 0},
		"the fence is not known":             {driver.ErrNotHeld, false, false, false, 0},
		"it has it":                          {nil, true, false, false, 0},
		"it has it, and missed a conversion": {nil, true, true, false, 1},
		"it failed, and missed a conversion": {errDenied, true, true, false, 0},
		"it has it, and is away":             {nil, true, true, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			r := heldBy(t, d, asks("k"))
			if c.converted {
				o := d.owners.get(r.Claim)
				o.mu.Lock()
				o.Converting()
				o.mu.Unlock()
				all[0].vote = func(context.Context, voting.VoteRequest) (driver.Result, error) { return driver.Result{}, errDenied }
				all[1].vote = all[0].vote
			}
			all[2].renew = func(context.Context, driver.RenewRequest) driver.Renewal {
				if c.out {
					d.nodes[2].setOut(errGone)
				}
				return driver.Renewal{TTL: ruleTTL, Err: c.said}
			}
			if !c.fence {
				r.Fence = 0
			}
			before := all[2].votes.Load()
			res := renewOne(t.Context(), d, r)
			failIf(t, res.Err != nil, "%s: %v", name, res.Err)
			if synctest.Wait(); all[2].votes.Load()-before != c.asked {
				t.Errorf("%s: asked %d times, want %d", name, all[2].votes.Load()-before, c.asked)
			}
		})
	}
}

// A lease that nobody here knows is renewed, and no vote of it is asked for.
func TestUnknownLeaseIsNotRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		other := New([]voting.Node{all[0], all[1], all[2]}, nil)
		defer other.end()
		r := heldBy(t, d, asks("k"))
		r.Fence = 0
		all[2].renew = func(context.Context, driver.RenewRequest) driver.Renewal {
			return driver.Renewal{Err: driver.ErrNotHeld}
		}
		before := all[2].votes.Load()
		if res := renewOne(t.Context(), other, r); res.Err != nil {
			t.Error(res.Err)
		}
		if synctest.Wait(); all[2].votes.Load() != before {
			t.Error("its vote is asked for")
		}
		if res := renewOne(t.Context(), d, driver.RenewRequest{Claim: asks("none").Claim(), TTL: ruleTTL}); !errors.Is(res.Err, driver.ErrNotHeld) {
			t.Errorf("%v, want ErrNotHeld", res.Err)
		}
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// A release that gave a vote back comes late, after the same owner was granted the
// key again, and no request of it is known to be under way any more: what it asked
// for last failed, or was refused. A client whose clock is ahead proposes what the
// nodes want, and for a reader that is the same fence twice.
func TestReleaseComesAfterTheNextGrant(t *testing.T) {
	for name, between := range map[string]struct {
		answered bool // the release that comes late is a second copy of one that was answered
		fails    bool // and a Try between found no node
	}{
		"its owner was refused":                    {answered: true},
		"a Try failed since":                       {fails: true},
		"its owner was refused, and a Try failed":  {answered: true, fails: true},
		"it was sent again, and that was answered": {},
	} {
		bubbled(t, name, func(t *testing.T) {
			stores := storesAhead(t, 3, -10*time.Second)
			other, _ := connect(t, stores)
			d, ts := connect(t, stores)
			for _, x := range []driver.Driver{other, d} {
				warm := ask("warm")
				mustTry(t, x, warm)
				release(t, x, warm)
			}
			free, freeLast := stores[1].Hold("k", ruleTTL, driver.Label{}), stores[2].Hold("k", ruleTTL, driver.Label{})
			time.Sleep(time.Millisecond)
			stores[0].Hold("other", ruleTTL, driver.Label{})() // its fences are the largest
			var late voting.WithdrawRequest
			ts[0].onRelease(func(ctx context.Context, r voting.WithdrawRequest) error {
				if late.Owner != "" {
					return nil
				}
				if late = r; between.answered {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
			x := ask("k")
			x.Mode = driver.Shared
			if res := mustTry(t, d, x); res.Granted || late.Owner != x.Owner {
				t.Fatalf("%+v, and its vote went back as %+v", res, late)
			}
			time.Sleep(time.Second) // everybody is in service, and the vote is back
			if got := holdsOn(t, stores, "k"); got[0] != "" {
				t.Fatalf("the votes are those of %q", got)
			}
			if between.fails {
				for _, s := range stores {
					s.SetUnreachable(true)
				}
				fails(t, d, x) // no node answers
				for _, s := range stores {
					s.SetUnreachable(false)
				}
				time.Sleep(2 * time.Second) // each was written to, and the queue is on the first one again
			}
			free()
			res := mustTry(t, d, x)
			stopIf(t, !res.Granted, "two of three nodes are free: %+v", res)
			synctest.Wait() // the third has refused it
			_ = stores[0].Withdraw(t.Context(), late)
			freeLast()
			y := ask("k")
			if got := mustTry(t, other, y); got.Granted {
				t.Errorf("two holders: fence %d, then %d; a release up to %d came between", res.Fence, got.Fence, late.UpTo)
			}
		})
	}
}

// A second copy of a reader's Try that comes after its release is its vote once more,
// and nobody's: with one a writer has the key within a second, whichever node has it;
// with a majority it waits for the TTL. A writer's is refused.
func TestSecondCopyOfATry(t *testing.T) {
	for name, tc := range map[string]struct {
		mode driver.Mode
		at   []int
		most time.Duration
	}{
		"a writer's, at all nodes":      {driver.Exclusive, []int{0, 1, 2}, 10 * time.Millisecond},
		"a reader's, at the queue node": {driver.Shared, []int{0}, freeFor},
		"a reader's, at another":        {driver.Shared, []int{2}, 10 * time.Millisecond},
		"a reader's, at a majority":     {driver.Shared, []int{1, 2}, ruleTTL + freeFor},
		"a reader's, line and majority": {driver.Shared, []int{0, 2}, ruleTTL + freeFor},
	} {
		bubbled(t, name, func(t *testing.T) {
			stores := newStores(t, 3)
			d, ts := warm(t, stores)
			sent := make([]voting.VoteRequest, len(ts))
			for i := range ts {
				ts[i].onTry(func(_ context.Context, r voting.VoteRequest) error { sent[i] = r; return nil })
			}
			r := ask("k")
			r.Mode, r.Settled = tc.mode, true
			mustTry(t, d, r)
			synctest.Wait()
			release(t, d, r)
			synctest.Wait()
			for _, i := range tc.at {
				res, err := stores[i].Vote(t.Context(), sent[i])
				failIf(t, err != nil || res.Granted != (tc.mode == driver.Shared), "node %d: %+v, %v", i, res, err)
			}
			c, _ := client(t, stores)
			begun := time.Now()
			lease := mustLock(t, c, "k")
			failIf(t, time.Since(begun) > tc.most, "the key was free for %v", time.Since(begun))
			_ = lease.Release()
		})
	}
}

// A client whose clock is ahead proposes too much at first. Where that had no answer,
// it was granted nowhere, and what is granted next counts: a release up to such a
// fence would take whatever the nodes may grant.
func TestFirstTryOfAFastClientIsLost(t *testing.T) {
	for name, carried := range map[string]bool{"the request": false, "the answer": true} {
		bubbled(t, name, func(t *testing.T) {
			stores := storesAhead(t, 3, -10*time.Second)
			d, ts := warm(t, stores)
			for i, s := range ts {
				s.onTry(func(ctx context.Context, r voting.VoteRequest) error {
					if carried {
						_, _ = stores[i].Vote(ctx, r)
					}
					<-ctx.Done()
					return ctx.Err()
				})
			}
			x := ask("k")
			fails(t, d, x) // no node answers
			for _, s := range ts {
				s.onTry(nil)
			}
			free := stores[1].Hold("k", ruleTTL, driver.Label{})
			stores[2].Hold("k", ruleTTL, driver.Label{})
			time.Sleep(time.Second) // all are in service again
			refused(t, d, x)        // two of three nodes are held
			synctest.Wait()         // its vote is back
			free()
			granted(t, d, x) // two of three nodes are free
		})
	}
}

// A holder that only the queue node knows is heeded for half a second, also where one of
// the others does not answer in time meanwhile.
func TestLateAnswerProlongsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, ts := warm(t, stores)
		stores[0].Hold("k", ruleTTL, driver.Label{})
		x := ask("k")
		x.Queue = true
		begun := time.Now()
		refused(t, d, x) // the queue node is heeded
		time.Sleep(200 * time.Millisecond)
		ts[1].onTry(hangs)
		res := mustTry(t, d, x)
		ts[1].onTry(nil)
		left := 500*time.Millisecond - time.Since(begun)
		failIf(t, res.Granted || res.RetryIn > left, "with two answers, and %v left: %+v", left, res)
		time.Sleep(500*time.Millisecond - time.Since(begun)) // all are in service again
		if res := mustTry(t, d, x); !res.Granted {
			t.Errorf("%v after it was refused: %+v", time.Since(begun), res)
		}
	})
}

// A node that hangs for longer than the TTL carries out the Try that it was sent when it goes on: it is told of the release all
// the same, and has the key for nobody.
func TestReleaseIsToldAfterTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, links := warm(t, stores)
		time.Sleep(time.Second)
		links[2].stop()
		x := ask("k")
		x.TTL, x.Patience, x.Settled = time.Second, time.Second, true
		granted(t, d, x)
		release(t, d, x)
		time.Sleep(2 * x.TTL)
		links[2].cont()
		time.Sleep(x.TTL / 2)
		synctest.Wait()
		if info, err := stores[2].Inspect(t.Context(), "k"); err != nil || info.Held {
			t.Errorf("the node that went on: %+v, %v", info, err)
		}
		res, err := contend.Try(t.Context(), stores[2], x)
		failIf(t, err != nil || res.Why != driver.WhyReleased, "another copy of the Try: %+v, %v; want Released", res, err)
	})
}

// A Try of an earlier round is still under way on a node that voted in a later one.
func TestReleaseLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := storesAhead(t, 3, time.Second)
		d, ts := connect(t, stores)
		for range 2 {
			w := ask("warm")
			mustTry(t, d, w)
			_ = contend.Release(t.Context(), d, w)
		}
		free := stores[0].Hold("k", ruleTTL, driver.Label{})
		x := ask("k")
		x.Queue = true
		refused(t, d, x)
		time.Sleep(100 * time.Millisecond)
		stores[0].Hold("other", time.Second, driver.Label{})() // its fences go on
		first := true
		ts[1].onTry(func(ctx context.Context, r voting.VoteRequest) error {
			ts[1].mu.Lock()
			wait := first
			first = false
			ts[1].mu.Unlock()
			if wait {
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		})
		free()
		go func() { // the node is only busy
			for range 100 {
				time.Sleep(5 * time.Millisecond)
				o := ask("o")
				o.Settled = true
				_, _ = contend.Try(t.Context(), d, o)
				_ = contend.Release(t.Context(), d, o)
			}
		}()
		res := mustTry(t, d, x)
		stopIf(t, !res.Granted, "%+v", res)
		x.Settled = true
		release(t, d, x)
		time.Sleep(5 * time.Second)
		got := holdsOn(t, stores, "k")
		failIf(t, got[0]+got[1]+got[2] != "", "votes 5 s after Release: %q", got)
	})
}

// A waiter's give-back that is lost: it stands in the queue, asleep, with votes.
func TestWaiterKeepsVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, ts := connect(t, stores)
		d2, _ := connect(t, stores)
		head := ask("k")
		mustTry(t, d2, ask("warm"))
		mustTry(t, d, ask("warm2"))
		time.Sleep(time.Second)
		free := stores[0].Hold("k", ruleTTL, driver.Label{})
		for _, i := range []int{1, 2} { // one lost packet each
			lost := false
			ts[i].onRelease(func(ctx context.Context, r voting.WithdrawRequest) error {
				ts[i].mu.Lock()
				first := !lost
				lost = true
				ts[i].mu.Unlock()
				if first {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
		}
		head.Queue = true
		first := mustTry(t, d2, head) // first in the queue
		x := ask("k")
		x.Queue = true
		time.Sleep(time.Millisecond)
		res0 := mustTry(t, d, x)
		t.Log(res0, holdsOn(t, stores, "k"), x.Owner, head.Owner)
		stopIf(t, res0.Granted || first.Granted, "granted")
		time.Sleep(time.Second)
		time.Sleep(time.Second)
		free()
		t.Log(holdsOn(t, stores, "k"))
		res := mustTry(t, d2, head)
		failIf(t, !res.Granted, "the key is free, and its next is refused a second later: %+v", res)
	})
}

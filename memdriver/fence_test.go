// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

func proposal(key string, fence uint64) contend.Owner {
	r := ask()
	r.Key, r.Fence, r.Settled = key, fence, true
	return r
}

// newFenced returns a store with its own clock and no record.
func newFenced() (*memdriver.Store, *wall) {
	w := newWall()
	return memdriver.NewNode(memdriver.NodeOptions{Now: w.now}), w
}

func grantAndRelease(t *testing.T, s *memdriver.Store, r contend.Owner) {
	t.Helper()
	res := try(t, s, r)
	stopIf(t, !res.Granted || res.Fence != r.Fence, "proposed %d: %+v", r.Fence, res)
	need(t, contend.Release(t.Context(), s, r))
}

// Proposals for different keys may overtake each other by 20 seconds, at any
// time and with any number of keys.
func TestProposalsOvertake(t *testing.T) {
	s, w := newFenced()
	try(t, s, proposal("before", w.fence()+1)) // what is older than the store is refused
	w.step(20 * time.Second)
	for i := range 2000 {
		w.step(500 * time.Millisecond)
		grantAndRelease(t, s, proposal("new"+strconv.Itoa(i), w.fence()))
		late := w.fence() - uint64((20 * time.Second).Microseconds()) + 1
		grantAndRelease(t, s, proposal("late"+strconv.Itoa(i), late))
	}
}

// A key that is forgotten leaves no way back for its fences, and lets the proposal
// pass that is above what its refusal says, also of a client whose clock is behind.
func TestForgottenKey(t *testing.T) {
	for _, c := range []struct{ idle, back time.Duration }{
		{2*time.Minute - time.Second, 0},
		{11 * time.Hour, 0},
		{13 * time.Hour, 0},
		{24 * time.Hour, 0},
		{60 * 24 * time.Hour, 0},
		{time.Hour, time.Hour},           // the clock was wrong for a while
		{24 * time.Hour, 11 * time.Hour}, // and longer than anything is remembered
	} {
		s, w := newFenced()
		fence := w.fence() + uint64((2 * time.Second).Microseconds())
		try(t, s, proposal("before", w.fence()+1))
		grantAndRelease(t, s, proposal("k", fence))
		w.step(c.idle)
		s.Sweep()
		failIf(t, s.Knows("k"), "%+v: the key is remembered", c)
		w.step(-c.back)
		for _, r := range []contend.Owner{proposal("k", fence), proposal("unseen", fence)} {
			res := try(t, s, r)
			if res.Why != voting.FenceTooLow || res.Fence < fence {
				t.Errorf("%+v: %q with the fence again: %+v", c, r.Key, res)
			}
			w.step(time.Second)
			grantAndRelease(t, s, proposal("above "+r.Key, res.Fence+1))
			grantAndRelease(t, s, proposal(r.Key, res.Fence+1))
		}
	}
}

// The newest fence of a key is remembered for a minute after the key was held,
// or for the longest TTL, and for longer when it was ahead of the clock.
func TestRememberedFences(t *testing.T) {
	for _, c := range []struct{ maxTTL, held, lead, want time.Duration }{
		{want: time.Minute},
		{held: 10 * time.Minute, want: 11 * time.Minute},
		{lead: 3 * time.Second, want: time.Minute + 3*time.Second},
		{maxTTL: time.Second, want: time.Minute},
		{maxTTL: time.Hour, want: time.Hour},
	} {
		w := newWall()
		s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: c.maxTTL, Now: w.now})
		if c.maxTTL > 0 {
			admit(t, s)
			w.step(time.Microsecond)
		}
		r := proposal("k", w.fence()+uint64(c.lead.Microseconds()))
		r.TTL, r.Restore = max(c.held, time.Millisecond), true // the store's first fence, at its clock
		res := try(t, s, r)
		stopIf(t, !res.Granted, "%+v: %+v", c, res)
		if c.held == 0 {
			need(t, contend.Release(t.Context(), s, r))
		}
		w.step(c.want - time.Microsecond)
		if s.Sweep(); !s.Knows("k") {
			t.Errorf("%+v: forgotten too early", c)
		}
		w.step(time.Microsecond)
		if s.Sweep(); s.Knows("k") {
			t.Errorf("%+v: not forgotten", c)
		}
	}
}

// Whatever clients propose and the clock does, a key's fences rise.
func TestFencesRiseWhateverTheClockDoes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		s, w := newFenced()
		newest := make(map[string]uint64)
		granted := 0
		for range 400 {
			switch rnd.IntN(8) {
			case 0:
				w.step(time.Duration(rnd.Int64N(int64(3*time.Minute))) - 90*time.Second)
			case 1:
				w.step(time.Duration(rnd.Int64N(int64(48*time.Hour))) - 24*time.Hour)
			default:
				w.step(time.Duration(rnd.Int64N(int64(15 * time.Second))))
			}
			if rnd.IntN(4) == 0 {
				s.Sweep()
			}
			key := strconv.Itoa(rnd.IntN(3))
			r := proposal(key, 0)
			switch rnd.IntN(6) {
			case 0: // minted
			case 1:
				r.Fence = newest[key] + uint64(rnd.IntN(3)) // the newest, or a little above
			default:
				r.Fence = w.fence() + uint64(rnd.Int64N(int64(time.Minute/time.Microsecond))) - uint64((30 * time.Second).Microseconds())
			}
			r.Fences = rnd.IntN(4)
			res := try(t, s, r)
			switch {
			case res.Why == voting.FenceTooLow:
				if r.Fence = res.Fence + 1; !try(t, s, r).Granted {
					t.Fatalf("%q: %d is refused after a refusal with %d", key, r.Fence, res.Fence)
				}
				res = driver.Result{Granted: true, Fence: r.Fence, Fences: 1}
			case !res.Granted:
				t.Fatalf("%q: %+v", key, res)
			}
			if first := res.Fence - uint64(res.Fences) + 1; first <= newest[key] {
				t.Fatalf("%q: granted %d fences up to %d after %d", key, res.Fences, res.Fence, newest[key])
			}
			granted++
			newest[key] = res.Fence
			if rnd.IntN(2) == 0 {
				r.Fence = res.Fence + uint64(rnd.IntN(1000))
				r.Raise = true
				if res = try(t, s, r); !res.Granted || res.Fence != r.Fence {
					t.Fatalf("%q: raised to %d: %+v", key, r.Fence, res)
				}
				newest[key] = res.Fence
			}
			need(t, contend.Release(t.Context(), s, r))
		}
	}
}

// A proposal is granted up to the skew that a good clock can have, and no further.
func TestProposalAtTheSkew(t *testing.T) {
	for extra, granted := range map[uint64]bool{0: true, 1: false} {
		s, w := newFenced()
		r := proposal("k", w.fence()+uint64(voting.MaxFenceSkew.Microseconds())+extra)
		res := try(t, s, r)
		failIf(t, res.Granted != granted, "%d us beyond: %+v", extra, res)
	}
}

// To raise a fence to itself is to renew, whatever the clock says meanwhile, and so is
// to raise it to nothing.
func TestRaiseToTheSame(t *testing.T) {
	s, w := newFenced()
	r := proposal("k", w.fence()+1)
	try(t, s, r)
	w.step(-24 * time.Hour)
	r.Raise = true
	if res := try(t, s, r); !res.Granted || res.Fence != r.Fence {
		t.Errorf("to itself: %+v", res)
	}
	res, err := s.Vote(t.Context(), voting.VoteRequest{TryRequest: r.Vote().TryRequest, Raise: true})
	failIf(t, err != nil || !res.Granted || res.Fence != r.Fence, "to nothing: %+v, %v", res, err)
}

// What arrives just after the end of a handover, before anybody else noticed it, says whether its owner entered: a Try that it
// did not, a Convert that it did. So does what arrives once it has its old place again, and is handed the key anew.
func TestAfterTheEndOfAHandover(t *testing.T) {
	for name, c := range map[string]struct {
		says  func(s *memdriver.Store, b contend.Owner)
		marks bool
	}{
		"nothing": {func(*memdriver.Store, contend.Owner) {}, true},
		"a Try":   {func(s *memdriver.Store, b contend.Owner) { try(t, s, b) }, false},
		"a Convert": {func(s *memdriver.Store, b contend.Owner) {
			b.Mode, b.Convert = driver.Shared, true
			try(t, s, b)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ahead := time.Duration(0)
				s := memdriver.NewNode(memdriver.NodeOptions{Now: func() time.Time { return time.Now().Add(ahead) }})
				a, b, next := ask(), ask(), ask()
				b.Queue, b.Enters, next.Queue = true, true, true
				try(t, s, a)
				hints := watch(t, s, b)
				try(t, s, b)
				try(t, s, next)
				need(t, contend.Release(t.Context(), s, a))
				to := (<-hints).Handover
				stopIf(t, to.Fence == 0, "the key was not handed over")
				ahead = to.TTL + time.Millisecond
				b.Fence = 0
				c.says(s, b)
				if res := try(t, s, next); !res.Granted || res.Abandoned != c.marks {
					t.Errorf("the next: %+v, want Abandoned %v", res, c.marks)
				}
			})
		})
	}
}

// A place that came back is handed the key again as one that does not enter: a Release, or a claim, of the earlier handover
// ends no mark, and takes no lease.
func TestHandedOverTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdriver.New()
		a, b, c, d := ask(), ask(), ask(), ask()
		b.Queue, b.Enters, c.Queue, c.Enters, d.Queue = true, true, true, true, true
		try(t, s, a)
		hints := map[string]<-chan driver.Hint{}
		for _, r := range []contend.Owner{b, c} {
			hints[r.Owner] = watch(t, s, r)
			try(t, s, r)
		}
		need(t, contend.Release(t.Context(), s, a))
		first := (<-hints[b.Owner]).Handover
		time.Sleep(first.TTL + time.Millisecond) // c is handed it, and b has its old place
		synctest.Wait()
		try(t, s, d)
		second := (<-hints[c.Owner]).Handover
		time.Sleep(second.TTL + time.Millisecond) // b again
		synctest.Wait()
		claim := b
		claim.Queue, claim.Entered, claim.Fence = false, true, first.Fence
		failIf(t, renew(t, s, claim) == nil, "a claim of the first handover takes the second")
		_ = contend.Release(t.Context(), s, b) // of the first
		_ = contend.Release(t.Context(), s, c)
		res := try(t, s, d)
		failIf(t, !res.Granted || !res.Abandoned, "the next: %+v, want a grant of an abandoned key", res)
	})
}

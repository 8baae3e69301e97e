// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/fence"
)

// Turns with reserved fences (Cohort, Keep) rise above all earlier grants while the store keeps its leases, whatever the network does.
// Where it loses one, and grants the key again before that lease was over, exclusion is broken, and the turns that still go on have smaller
// fences: of a lease that the store confirmed before the other's grant, and no other. A guard refuses each of these.
func TestReservedFencesFallWithExclusionOnly(t *testing.T) {
	const seeds = 20
	for _, loses := range []bool{false, true} {
		falls := 0
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) { falls += reservedTurns(t, seed, loses) })
		}
		t.Logf("the store loses leases: %v; %d fences fell", loses, falls)
		failIf(t, loses != (falls > 0), "the store loses leases: %v, and %d fences fell", loses, falls)
	}
}

// reservedTurns has two clients of several workers use a key on a bad network, and returns how many fences fell.
func reservedTurns(t *testing.T, seed uint64, loses bool) (falls int) {
	store := newStore()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	type grant struct {
		fence uint64
		at    time.Time
	}
	var mu sync.Mutex
	var largest grant // of all until now
	var guard fence.Memory
	granted := func(l *hasp.Lease) {
		mu.Lock()
		defer mu.Unlock()
		now, confirmed := time.Now(), l.Deadline().Add(-usable)
		err := guard.Write("k", l.Fence(), func() error { return nil })
		if l.Fence() > largest.fence {
			largest = grant{l.Fence(), now}
			failIf(t, err != nil, "the guard refuses the largest fence: %v", err)
			return
		}
		falls++
		if stale := new(fence.StaleError); confirmed.After(largest.at) || !errors.As(err, &stale) {
			t.Errorf("seed %d: fence %d, of a lease confirmed at %v, after %d, granted at %v; the guard: %v",
				seed, l.Fence(), confirmed, largest.fence, largest.at, err)
		}
	}
	var all sync.WaitGroup
	for client := range uint64(2) {
		c := newClient(t, &hooked{Driver: store}, nil)
		o := &hasp.LockOptions{Cohort: 5 * time.Second}
		if rand.New(rand.NewPCG(seed, client)).IntN(4) > 0 {
			o.Keep = 20 * time.Second
		}
		for worker := range uint64(3) {
			rnd := rand.New(rand.NewPCG(seed, 10*client+worker+100))
			pause := func(most time.Duration) { time.Sleep(time.Duration(rnd.Int64N(int64(most)))) }
			all.Go(func() {
				for ctx.Err() == nil {
					limited, cancel := context.WithTimeout(ctx, 20*time.Second)
					if lease, err := c.Mutex("k", o).Lock(limited); err == nil {
						granted(lease)
						pause(200 * time.Millisecond)
						_ = lease.Release()
					}
					cancel()
					pause(2 * time.Second)
				}
			})
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
		store.SetUnreachable(rnd.IntN(3) == 0)
		if rnd.IntN(3) == 0 {
			time.Sleep(time.Duration(rnd.Int64N(int64(2 * ttl))))
		}
		store.SetUnreachable(false)
		if loses && rnd.IntN(2) == 0 {
			store.Lose("k")
		}
	}
	all.Wait()
	return falls
}

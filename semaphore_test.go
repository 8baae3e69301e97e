// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/history"
)

// n hold a semaphore, each with the smallest slot that was free; the next waits
// for one, and has its slot.
func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		s := newClient(t, store, nil).Semaphore("k", 3, nil)
		var held []*hasp.Lease
		for i := range 3 {
			l := must(s.Lock(t.Context()))
			if l.Slot() != i || l.Mode() != hasp.Shared {
				t.Errorf("holder %d has slot %d, mode %v", i, l.Slot(), l.Mode())
			}
			held = append(held, l)
		}
		_, err := s.TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		next := begin(t.Context(), s.Lock)
		time.Sleep(10 * ttl) // all are renewed
		waits(t, "the fourth", next)
		release(t, held[1])
		synctest.Wait()
		if l := granted(t, "the fourth", next); l.Slot() != 1 {
			t.Errorf("it has slot %d", l.Slot())
		} else {
			release(t, l)
		}
		release(t, held[2])
		release(t, held[0])
		mustBeFree(t, store, "k")
		err = s.Do(t.Context(), func(_ context.Context, l *hasp.Lease) error {
			failIf(t, l.Slot() != 0, "the first one has slot %d", l.Slot())
			return nil
		})
		check(t, err)
	})
}

// The slot of a holder that died is free after its TTL.
func TestSlotOfACrashedHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		d := &mortal{Driver: store}
		dies := must(newClient(t, d, nil).Semaphore("k", 2, nil).Lock(t.Context()))
		c := newClient(t, store, nil)
		lives := must(c.Semaphore("k", 2, nil).Lock(t.Context()))
		d.dead.Store(true)
		start := time.Now()
		next := must(c.Semaphore("k", 2, nil).Lock(t.Context()))
		if took := time.Since(start); took != ttl || next.Slot() != dies.Slot() {
			t.Errorf("after %v slot %d, the other had %d", took, next.Slot(), dies.Slot())
		}
		wantIs(t, dies.Err(), hasp.ErrLost)
		release(t, next)
		release(t, lives)
	})
}

// If holders name different n, the smallest one of theirs and the caller's
// counts.
func TestSemaphoreOfChangedSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		three, one, five := c.Semaphore("k", 3, nil), c.Semaphore("k", 1, nil), c.Semaphore("k", 5, nil)
		a := must(three.Lock(t.Context()))
		b := must(five.Lock(t.Context()))
		_, err := one.TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		d := must(five.TryLock(t.Context()))
		_, err = five.TryLock(t.Context()) // a of three is there
		wantIs(t, err, hasp.ErrHeld)
		release(t, a)
		e, f, g := must(five.TryLock(t.Context())), must(five.TryLock(t.Context())), must(five.TryLock(t.Context()))
		_, err = three.TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		slots := []int{b.Slot(), d.Slot(), e.Slot(), f.Slot(), g.Slot()}
		if slices.Sort(slots); !slices.Equal(slots, []int{0, 1, 2, 3, 4}) {
			t.Errorf("the slots are %v", slots)
		}
		for _, l := range []*hasp.Lease{b, d, e, f, g} {
			release(t, l)
		}
	})
}

// 64 processes, some of which are killed: never more than n hold a semaphore,
// never two one slot, and all of them have their turn.
func TestSemaphoreOfManyProcesses(t *testing.T) {
	const n = 5
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		hist := &history.Log{}
		var wg sync.WaitGroup
		for i := range uint64(64) {
			rnd := rand.New(rand.NewPCG(1, i))
			d := &mortal{Driver: store}
			s := newClient(t, d, nil).Semaphore("k", n, &hasp.LockOptions{TTL: 5 * time.Second})
			wg.Go(func() {
				for range 10 {
					if rnd.IntN(20) == 0 {
						d.dead.Store(true) // as one that holds nothing, or waits
						return
					}
					l, err := s.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					held := hist.Acquired(history.Hold{Key: "k", Owner: l.Owner(), Fence: l.Fence(), Shared: true, Limit: n, Slot: l.Slot()}, forever)
					ctx := l.Context(t.Context())
					if rnd.IntN(20) == 0 {
						d.dead.Store(true)
						<-ctx.Done() // it believes in its lease for as long as it may
						hist.Released(held)
						return
					}
					_ = sleep(ctx, time.Duration(rnd.IntN(2000))*time.Millisecond)
					hist.Released(held)
					release(t, l)
				}
			})
		}
		wg.Wait()
		check(t, history.Check(hist.Holds()))
		if got := len(hist.Holds()); got < 64 {
			t.Errorf("only %d holds", got)
		}
		time.Sleep(ttl)
		mustBeFree(t, store, "k")
	})
}

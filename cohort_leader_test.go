// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

// A waiter that gives up leaves its turn to the cohort's other waiters; its error names the holder that was in the way.
func TestCohortGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		first := lock(t, c, "k", inCohort)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := c.Mutex("k", inCohort).Lock(ctx)
				errs <- err
			}()
			synctest.Wait()
		}
		got := queueUp(t, c, 1, inCohort)
		cancel()
		for range 2 {
			err := <-errs
			wantIs(t, err, context.Canceled, hasp.ErrHeld)
			held := (*hasp.HeldError)(nil)
			failIf(t, !errors.As(err, &held) || held.Holder.Owner != first.Owner(), "it says %v", err)
		}
		release(t, first)
		release(t, <-got)
		mustBeFree(t, store, "k")
	})
}

// A leader whose wait for the store ends hands the lead on.
func TestCohortLosesItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		blocker := lock(t, elsewhere, "k", nil)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := c.Mutex("k", inCohort).Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		got := queueUp(t, c, 2, inCohort)
		cancel()
		wantIs(t, <-failed, context.Canceled, hasp.ErrHeld)
		synctest.Wait()
		start := time.Now()
		release(t, blocker)
		release(t, <-got)
		if took := time.Since(start); took > 0 { // by the hint that was the leader's
			t.Errorf("the next leader had the key after %v", took)
		}
		release(t, <-got)
		mustBeFree(t, store, "k")
	})
}

// The turn that comes at the moment its waiter gives up is passed on.
func TestCohortGivingUpRacesWithTheTurn(t *testing.T) {
	c := newClient(t, newStore(), nil)
	for range 300 {
		first := lock(t, c, "k", inCohort)
		var wg sync.WaitGroup
		var inside atomic.Int32
		for i := range 6 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if i%2 == 0 {
					go cancel()
				}
				lease, err := c.Mutex("k", inCohort).Lock(ctx)
				if err != nil {
					return
				}
				failIf(t, inside.Add(1) != 1, "two hold the key")
				inside.Add(-1)
				release(t, lease)
			})
		}
		release(t, first)
		wg.Wait()
		release(t, lock(t, c, "k", inCohort))
	}
}

// A cohort whose leaders have almost no time left still has its turns: the place in the queue is the cohort's.
func TestCohortOfImpatientLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		blocker := lock(t, elsewhere, "k", nil)
		end, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 2 { // hold it in turn, a second each
			wg.Go(func() {
				for {
					lease, err := elsewhere.Mutex("k", nil).Lock(end)
					if err != nil {
						return
					}
					time.Sleep(time.Second)
					release(t, lease)
				}
			})
		}
		wg.Go(func() {
			time.Sleep(15 * time.Second)
			release(t, blocker)
		})
		var locked, failed atomic.Int64
		for i := range 600 { // each bears 10 s
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(end, 10*time.Second)
				defer cancel()
				lease, err := c.Mutex("k", inCohort).Lock(ctx)
				if err != nil {
					failed.Add(1)
					return
				}
				locked.Add(1)
				release(t, lease)
			})
			time.Sleep(100 * time.Millisecond)
			if i == 300 {
				locked.Store(0)
				failed.Store(0)
			}
		}
		if locked.Load() < 200 || failed.Load() > 0 {
			t.Errorf("in the last 30 s %d Locks had the key, and %d gave up", locked.Load(), failed.Load())
		}
		stop()
		wg.Wait()
		synctest.Wait()
		mustBeFree(t, store, "k")
	})
}

// A store that does not answer is reported at once to all waiters that waited for it as long, and to the later waiters as what it is.
func TestCohortOnASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, &hooked{Driver: newStore(), try: hangTry}, &hasp.Options{MaxSilence: 5 * time.Second})
		start := time.Now()
		errs := make(chan error, 7)
		for i := range 7 {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i == 6 {
				ctx, cancel = context.WithTimeout(ctx, 4*time.Second)
				defer cancel()
			}
			go func() {
				_, err := c.Mutex("k", inCohort).Lock(ctx)
				errs <- err
			}()
			synctest.Wait()
		}
		for range 7 {
			err := <-errs
			var e *hasp.Error
			if !errors.As(err, &e) || e.Class != driver.ClassUnreachable || errors.Is(err, hasp.ErrHeld) {
				t.Errorf("the error is %v", err)
			}
		}
		failIf(t, time.Since(start) > 6*time.Second, "the last heard after %v", time.Since(start))
	})
}

// The next leader bears the silence of a store from when it came, and nothing of a wait in which the store was well.
func TestNextLeaderBearsItsOwnSilence(t *testing.T) {
	const most = 20 * time.Second
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore(), classify: func(error) driver.Class { return driver.ClassUnreachable }}
			blocker := lock(t, newClient(t, d.Driver, nil), "k", nil)
			if away {
				d.try = hangTry
			}
			c := newClient(t, d, &hasp.Options{MaxSilence: most})
			ctx, cancel := context.WithCancel(t.Context())
			first := begin(ctx, c.Mutex("k", inCohort).Lock)
			time.Sleep(most / 2)
			start := time.Now()
			next := begin(t.Context(), c.Mutex("k", inCohort).Lock)
			time.Sleep(most / 4)
			if !away {
				time.Sleep(time.Minute)
			}
			cancel()
			wantIs(t, (<-first).err, context.Canceled)
			if !away {
				release(t, blocker)
				release(t, comes(t, next))
				return
			}
			err := (<-next).err
			took := time.Since(start)
			failIf(t, err == nil || took < most*8/10 || took > most, "%v after %v, want about %v", err, took, most)
		})
	}
}

// A Try of one leader that had no answer is one of the cohort's owner.
func TestCohortIsNotSettledByItsNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, loses, said := settledness(t)
		ctx, cancel := context.WithCancel(t.Context())
		loses.Store(true)
		failed := make(chan error)
		go func() {
			_, err := c.Mutex("k", inCohort).Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		got := queueUp(t, c, 2, inCohort)
		loses.Store(false)
		cancel()
		wantIs(t, <-failed, context.Canceled)
		for range 2 {
			release(t, <-got)
		}
		failIf(t, said(), "a Try of the first leader had no answer, but the Release is settled")
	})
}

// A leader leaves when its context ends, though the store does not confirm a subscription.
func TestCohortLeaderLeavesAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.watch = func(ctx context.Context, _ driver.Claim, _ watchFunc) (<-chan driver.Hint, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := newClient(t, d, nil)
		other := newClient(t, d.Driver, nil)
		lock(t, other, "k", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Mutex("k", inCohort).Lock(ctx)
		wantIs(t, err, context.DeadlineExceeded)
		failIf(t, time.Since(start) > time.Second, "it left after %v", time.Since(start))
	})
}

// A caller that waits for its turn in a cohort learns of the leader.
func TestWaitingForATurnIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []event.Event
		c := newClient(t, newStore(), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Waiting {
				told = append(told, *e)
			}
		}})
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 2, inCohort)
		// The first of them leads, and the second waits for its turn.
		last := told[len(told)-1]
		failIf(t, len(told) != 2 || last.Holder.Owner != first.Owner() || last.Left <= 0, "told %+v", told)
		release(t, first)
		release(t, <-got)
		release(t, <-got)
	})
}

// The place in the queue stays the cohort's when its leader and the next waiter give up at once and other waiters go on; the last waiter leaves it.
func TestCohortGivesUpAtOnce(t *testing.T) {
	for range 20 {
		for _, others := range []int{0, 1} {
			synctest.Test(t, func(t *testing.T) {
				store, c := newMem(t)
				blocker := lock(t, newClient(t, store, nil), "k", nil)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for range 2 {
					go func() { _, _ = c.Mutex("k", inCohort).Lock(ctx) }()
					synctest.Wait()
				}
				order := make(chan string, 2)
				var waiters sync.WaitGroup
				take := func(who string, m *hasp.Mutex) {
					waiters.Go(func() {
						l := must(m.Lock(t.Context()))
						order <- who
						release(t, l)
					})
					synctest.Wait()
				}
				for range others {
					take("cohort", c.Mutex("k", inCohort))
				}
				take("elsewhere", newClient(t, store, nil).Mutex("k", nil))
				time.Sleep(2 * time.Second)
				if info, err := store.Inspect(t.Context(), "k"); err != nil || info.Waiters != 1+others {
					t.Fatalf("%d places, with %d others: %v", info.Waiters, others, err)
				}
				release(t, blocker)
				first := <-order
				failIf(t, (first == "cohort") != (others > 0), "with %d others the first was %s", others, first)
				waiters.Wait()
			})
		}
	}
}

// The hold of a cohort ends at the moment at which the last who waits for a turn gives
// up: then the cohort is over, and the next one begins anew.
func TestCohortGivesUpWhenTheHoldEnds(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			store, c := newMem(t)
			offset := shifted(c)
			lease := lock(t, c, "k", inCohort)
			ctx, cancel := context.WithCancel(t.Context())
			got := begin(ctx, c.Mutex("k", inCohort).Lock)
			synctest.Wait()
			offset.Store(int64(time.Hour))
			cancel()
			wantIs(t, lease.Err(), hasp.ErrLost)
			wantIs(t, (<-got).err, context.Canceled)
			_ = lease.Release()
			release(t, lock(t, c, "k", inCohort))
			mustBeFree(t, store, "k")
		})
	}
}

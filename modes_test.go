// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/history"
)

// Readers of all clients hold a key together, a writer alone, with a fence above theirs.
func TestReadersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		one, two := newClient(t, store, nil), newClient(t, store, nil)
		a := must(one.RWMutex("k", nil).RLock(t.Context()))
		b := must(two.RWMutex("k", nil).TryRLock(t.Context()))
		failIf(t, a.Mode() != hasp.Shared || b.Mode() != hasp.Shared, "the modes are %v and %v", a.Mode(), b.Mode())
		for name, try := range map[string]func(context.Context) (*hasp.Lease, error){
			"a writer": two.RWMutex("k", nil).TryLock,
			"a mutex":  two.Mutex("k", nil).TryLock,
			"a leader": two.Election("k", nil).TryLock,
			"write all": func(ctx context.Context) (*hasp.Lease, error) {
				_, err := mutexes(two, "k").TryLock(ctx)
				return nil, err
			},
		} {
			_, err := try(t.Context())
			if wantIs(t, err, hasp.ErrHeld); !errors.As(err, new(*hasp.HeldError)) {
				t.Errorf("%s: no HeldError in %v", name, err)
			}
		}
		time.Sleep(10 * ttl) // both are renewed
		writer := begin(t.Context(), one.RWMutex("k", nil).Lock)
		synctest.Wait()
		release(t, a)
		synctest.Wait()
		waits(t, "the writer", writer)
		release(t, b)
		w := (<-writer).v
		if w.Fence() <= a.Fence() || w.Fence() <= b.Fence() || w.Mode() != hasp.Exclusive {
			t.Errorf("the writer has fence %d, after %d and %d, and mode %v", w.Fence(), a.Fence(), b.Fence(), w.Mode())
		}
		_, err := two.RWMutex("k", nil).TryRLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		release(t, w)
		mustBeFree(t, store, "k")
	})
}

// Readers that are next to each other in the queue enter together; those behind a waiting writer wait for it.
func TestQueueOfReadersAndWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		m := c.RWMutex("k", nil)
		first := must(m.Lock(t.Context()))
		var line []chan outcome[*hasp.Lease]
		for _, call := range []func(context.Context) (*hasp.Lease, error){m.RLock, m.RLock, m.Lock, m.RLock, m.RLock, m.Lock} {
			line = append(line, begin(t.Context(), call))
			synctest.Wait()
		}
		for _, turn := range [][]int{{0, 1}, {2}, {3, 4}, {5}} {
			if turn[0] == 0 {
				release(t, first)
			}
			synctest.Wait()
			var leases []*hasp.Lease
			for _, i := range turn {
				leases = append(leases, granted(t, "one whose turn it is", line[i]))
			}
			for _, later := range line[turn[len(turn)-1]+1:] {
				waits(t, "one who came later", later)
			}
			for i, l := range leases {
				release(t, l)
				synctest.Wait()
				if next := turn[len(turn)-1] + 1; i < len(leases)-1 && next < len(line) {
					waits(t, "the next", line[next])
				}
			}
		}
	})
}

// A writer is not starved by a stream of readers, of which there is always one: it waits for those before it only.
func TestWriterIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		const hold = 95 * time.Millisecond
		var wg sync.WaitGroup
		for i := range 100 {
			c := newClient(t, store, nil)
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				err := c.RWMutex("k", nil).RDo(t.Context(), func(context.Context, *hasp.Lease) error {
					time.Sleep(hold)
					return nil
				})
				check(t, err)
			})
		}
		time.Sleep(305 * time.Millisecond)
		start := time.Now()
		w := must(newClient(t, store, nil).RWMutex("k", nil).Lock(t.Context()))
		failIf(t, time.Since(start) > hold, "the writer waited for %v, a reader holds for %v", time.Since(start), hold)
		release(t, w)
		wg.Wait()
		mustBeFree(t, store, "k")
	})
}

// The key of a reader, or a writer, that died is free after its TTL.
func TestCrashOfReaderAndWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		for name, call := range map[string]func(*hasp.RWMutex) func(context.Context) (*hasp.Lease, error){
			"reader": func(m *hasp.RWMutex) func(context.Context) (*hasp.Lease, error) { return m.RLock },
			"writer": func(m *hasp.RWMutex) func(context.Context) (*hasp.Lease, error) { return m.Lock },
		} {
			d := &mortal{Driver: store}
			must(call(newClient(t, d, nil).RWMutex(name, nil))(t.Context()))
			d.dead.Store(true)
			start := time.Now()
			w := must(newClient(t, store, nil).RWMutex(name, nil).Lock(t.Context()))
			failIf(t, time.Since(start) != ttl, "%s: the next waited for %v", name, time.Since(start))
			release(t, w)
		}
	})
}

// RDo is Do of a reader.
func TestRDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		m := newClient(t, store, nil).RWMutex("k", nil)
		mine := errors.New("mine")
		for want, do := range map[hasp.Mode]func(context.Context, func(context.Context, *hasp.Lease) error) error{
			hasp.Shared: m.RDo, hasp.Exclusive: m.Do,
		} {
			err := do(t.Context(), func(ctx context.Context, lease *hasp.Lease) error {
				if info := must(store.Inspect(ctx, "k")); info.Holder.Mode != want || lease.Mode() != want {
					t.Errorf("held %v, with a lease %v: want %v", info.Holder.Mode, lease.Mode(), want)
				}
				return mine
			})
			wantIs(t, err, mine)
		}
		mustBeFree(t, store, "k")
	})
}

// Events say how a key is held.
func TestEventsCarryTheMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []event.Event
		c := newClient(t, newStore(), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, *e)
		}})
		slots := c.Semaphore("s", 2, nil)
		a, b := must(slots.Lock(t.Context())), must(slots.Lock(t.Context()))
		waiting := begin(t.Context(), slots.Lock)
		time.Sleep(ttl / 2) // renewed
		release(t, b)
		release(t, (<-waiting).v)
		release(t, a)
		w := must(c.RWMutex("k", nil).Lock(t.Context()))
		need(t, w.Downgrade(t.Context()))
		release(t, w)
		var kinds []string
		for _, e := range seen {
			kinds = append(kinds, e.Kind.String())
			if e.Mode != hasp.Shared && (e.Key == "s" || e.Kind != event.Acquired) {
				t.Errorf("%v of %s is %v", e.Kind, e.Key, e.Mode)
			}
			if e.Key == "s" && e.Kind == event.Released && (e.Slot == 0) != (e.Owner == a.Owner()) {
				t.Errorf("slot %d was released by %s", e.Slot, e.Owner)
			}
		}
		for _, want := range []string{"waiting", "acquired", "renewed", "released", "downgraded"} {
			failIf(t, !slices.Contains(kinds, want), "no event %s in %v", want, kinds)
		}
	})
}

// n hold a semaphore, each with the smallest slot that was free; the next waits for one, and has its slot.
func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		s := newClient(t, store, nil).Semaphore("k", 3, nil)
		var held []*hasp.Lease
		for i := range 3 {
			l := must(s.Lock(t.Context()))
			failIf(t, l.Slot() != i || l.Mode() != hasp.Shared, "holder %d has slot %d, mode %v", i, l.Slot(), l.Mode())
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

// If holders name different n, the smallest one of theirs and the caller's counts.
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

// 64 processes, some of which are killed: never more than n hold a semaphore, never two one slot, and all of them have their turn.
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
						d.dead.Store(true) // as a client that holds nothing, or waits
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
		failIf(t, len(hist.Holds()) < 64, "only %d holds", len(hist.Holds()))
		time.Sleep(ttl)
		mustBeFree(t, store, "k")
	})
}

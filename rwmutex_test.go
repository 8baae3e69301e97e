// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
)

// Readers of all clients hold a key together, a writer alone, with a fence above
// theirs.
func TestReadersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		one, two := newClient(t, store, nil), newClient(t, store, nil)
		a := must(one.RWMutex("k", nil).RLock(t.Context()))
		b := must(two.RWMutex("k", nil).TryRLock(t.Context()))
		failIf(t, a.Mode() != hasp.Shared || b.Mode() != hasp.Shared, "the modes are %v and %v", a.Mode(), b.Mode())
		for name, try := range map[string]func(context.Context) (*hasp.Lease, error){
			"a writer":  two.RWMutex("k", nil).TryLock,
			"a mutex":   two.Mutex("k", nil).TryLock,
			"a leader":  two.Election("k", nil).TryLock,
			"write all": func(ctx context.Context) (*hasp.Lease, error) { _, err := two.TryLockKeys(ctx, "k"); return nil, err },
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

// Readers that are next to each other in the queue enter together; those behind a
// waiting writer wait for it.
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

// A writer is not starved by a stream of readers, of which there is always one:
// it waits for those before it only.
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
		if took := time.Since(start); took > hold {
			t.Errorf("the writer waited for %v, a reader holds for %v", took, hold)
		}
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
		var seen []hasp.Event
		c := newClient(t, newStore(), &hasp.Options{Observe: func(e hasp.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e)
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
			if e.Mode != hasp.Shared && (e.Key == "s" || e.Kind != hasp.EventAcquired) {
				t.Errorf("%v of %s is %v", e.Kind, e.Key, e.Mode)
			}
			if e.Key == "s" && e.Kind == hasp.EventReleased && (e.Slot == 0) != (e.Owner == a.Owner()) {
				t.Errorf("slot %d was released by %s", e.Slot, e.Owner)
			}
		}
		for _, want := range []string{"waiting", "acquired", "renewed", "released", "downgraded"} {
			failIf(t, !slices.Contains(kinds, want), "no event %s in %v", want, kinds)
		}
	})
}

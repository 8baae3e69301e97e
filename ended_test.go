// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// teller is an engine that hears by itself that leases are over: when the test says so.
type teller struct {
	*hooked
	lost func(driver.ID, uint64)
}

func (d *teller) Tell(lost func(driver.ID, uint64)) { d.lost = lost }

// id finds out who holds a key.
func (d *teller) id(t *testing.T, key string) driver.ID {
	t.Helper()
	info, err := d.Inspect(t.Context(), key)
	if err != nil || !info.Held {
		t.Fatalf("%q: %+v, %v", key, info, err)
	}
	return driver.ID{Key: key, Owner: info.Holder.Owner, Label: info.Holder.Label}
}

// What the engine hears from the store ends the lease at once, before any renewal, and says why.
func TestEngineTellsOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &teller{hooked: &hooked{Driver: newStore()}}
		var lost []hasp.Event
		c := newClient(t, d, &hasp.Options{Observe: func(e hasp.Event) {
			if e.Kind == hasp.EventLost {
				lost = append(lost, e)
			}
		}})
		lease, other := lock(t, c, "k", nil), lock(t, c, "other", nil)
		ctx := lease.Context(t.Context())
		start := time.Now()
		d.lost(d.id(t, "k"), lease.Fence())
		<-ctx.Done()
		synctest.Wait()
		failIf(t, time.Since(start) != 0, "the context ended after %v, want at once", time.Since(start))
		wantIs(t, context.Cause(ctx), hasp.ErrLost)
		wantIs(t, lease.Err(), hasp.ErrLost, hasp.ErrNotHeld)
		if len(lost) != 1 || lost[0].Key != "k" || !errors.Is(lost[0].Err, hasp.ErrLost) {
			t.Errorf("the observer was told of %+v", lost)
		}
		if err := other.Err(); err != nil {
			t.Errorf("the other lease: %v", err)
		}
	})
}

// Late and strange news ends nothing: of a lease with a smaller fence, of an owner that
// nobody here is, of another label, of a lease that was released, of a closed client's.
func TestEngineTellsOfOthersEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &teller{hooked: &hooked{Driver: newStore()}}
		c := newClient(t, d, nil)
		gone := lock(t, c, "gone", nil)
		old := d.id(t, "gone")
		need(t, gone.Release())
		lease := lock(t, c, "k", nil)
		id := d.id(t, "k")
		stranger, labelled := id, id
		stranger.Owner, labelled.Label = old.Owner, "another"
		for _, news := range []driver.ID{old, stranger, labelled} {
			d.lost(news, lease.Fence())
		}
		d.lost(id, lease.Fence()-1)
		synctest.Wait()
		if err := lease.Err(); err != nil {
			t.Errorf("the lease: %v", err)
		}
		if err := gone.Err(); !errors.Is(err, hasp.ErrNotHeld) || errors.Is(err, hasp.ErrLost) {
			t.Errorf("the lease that was released: %v", err)
		}
		if err := lease.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
		need(t, c.Close())
		d.lost(id, lease.Fence())
	})
}

// A session that ends may end thousands of leases, some of which are just being released.
func TestEngineTellsOfThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		d := &teller{hooked: &hooked{Driver: newStore()}}
		c := newClient(t, d, nil)
		leases, ids := make([]*hasp.Lease, n), make([]driver.ID, n)
		for i := range leases {
			key := string(rune('a'+i%26)) + time.Duration(i).String()
			leases[i] = lock(t, c, key, nil)
			ids[i] = d.id(t, key)
		}
		go func() {
			for i := range leases {
				d.lost(ids[i], leases[i].Fence())
			}
		}()
		for _, l := range leases[:n/10] {
			if err := l.Release(); err != nil && !errors.Is(err, hasp.ErrLost) {
				t.Errorf("Release: %v", err)
			}
		}
		synctest.Wait()
		for _, l := range leases[n/10:] {
			wantIs(t, l.Err(), hasp.ErrLost)
		}
	})
}

// What an engine without fences tells ends that lease alone.
func TestEngineWithoutFencesTellsOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &teller{hooked: &hooked{Driver: newStore()}}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			res.Fence = 0
			return res, err
		}
		c := newClient(t, d, nil)
		lease, other := lock(t, c, "k", nil), lock(t, c, "other", nil)
		d.lost(d.id(t, "k"), 0)
		synctest.Wait()
		wantIs(t, lease.Err(), hasp.ErrLost)
		if err := other.Err(); err != nil {
			t.Errorf("the other lease: %v", err)
		}
	})
}

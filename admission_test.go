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
	"github.com/hasplock/hasp/memdriver"
)

// recorded is a store with a node record, which counts who admits it.
type recorded struct {
	*memdriver.Store
	err    error // of Record
	admits int
}

func (d *recorded) Record(ctx context.Context) (driver.Record, error) {
	if d.err != nil {
		return driver.Record{Voting: true}, d.err
	}
	return d.Store.Record(ctx)
}

func (d *recorded) Admit(ctx context.Context, r driver.Record, maxTTL time.Duration) error {
	d.admits++
	return d.Store.Admit(ctx, r, maxTTL)
}

// Admit ends the wait of a store that is held back, and asks nothing of another.
func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &recorded{Store: memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Hour})}
		c := newClient(t, d, nil)
		m := c.Mutex("k", nil)
		_, err := m.TryLock(t.Context())
		wantIs(t, err, driver.ErrNotVoting)
		for range 2 {
			if err := c.Admit(t.Context()); err != nil || d.admits != 1 {
				t.Fatalf("%v, admitted %d times", err, d.admits)
			}
		}
		release(t, must(m.TryLock(t.Context())))

		d.Flush()
		d.err = errDown
		if wantIs(t, c.Admit(t.Context()), errDown); d.admits != 1 {
			t.Error("admitted without a record")
		}
		wantIs(t, newClient(t, newStore(), nil).Admit(t.Context()), hasp.ErrUnsupported)
		need(t, c.Close())
		wantIs(t, c.Admit(t.Context()), hasp.ErrClosed)
	})
}

// What a store that is held back refuses, and a TTL that is too long for it, is not
// asked twice at once.
func TestRefusedByTheStore(t *testing.T) {
	for _, c := range []struct {
		res   driver.Result
		class hasp.Class
		is    error
	}{
		{driver.Result{Why: driver.NotVoting, Left: time.Minute}, hasp.ClassUnreachable, driver.ErrNotVoting},
		{driver.Result{Why: driver.TTLTooLong, TTL: time.Second}, hasp.ClassImpossible, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) { return c.res, nil }
			_, err := newClient(t, d, nil).Mutex("k", nil).TryLock(t.Context())
			var e *hasp.Error
			if !errors.As(err, &e) || e.Class != c.class || d.tries.Load() != 1 {
				t.Fatalf("%v, asked %d times", err, d.tries.Load())
			}
			if c.is != nil {
				wantIs(t, err, c.is)
			}
		})
	}
}

// After the wait of a store that was held back, the first to ask is granted the key.
func TestTheWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &recorded{Store: memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Minute})}
		m := newClient(t, d, nil).Mutex("k", nil)
		_, err := m.TryLock(t.Context())
		wantIs(t, err, driver.ErrNotVoting)
		time.Sleep(2 * time.Minute)
		release(t, must(m.TryLock(t.Context())))
	})
}

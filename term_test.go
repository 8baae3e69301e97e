// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/memdriver"
)

// An answer to a renewal that comes after the deadline never revives a lease,
// also when nobody has noticed its loss yet: another may have had the key since.
func TestLateAnswerRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memdriver.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lease, err := c.Mutex("k", nil).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.core.renewer.Remove(lease.h) // a loop that does not run
		time.Sleep(DefaultTTL - time.Second)
		sent := c.core.now()
		time.Sleep(2 * time.Second)
		lease.h.Renewed(sent, driver.Renewal{TTL: DefaultTTL})
		if why := lease.h.whyEnded(); !errors.Is(why, ErrLost) {
			t.Errorf("the lease: %v, want ErrLost", why)
		}
	})
}

// at is an instant by all clocks of a machine.
func at(d time.Duration) clock.Instant { return clock.Instant{Mono: d, Wall: d} }

// slow is a driver whose answers to Try take a while, whatever its context says.
type slow struct {
	driver.Driver
	wait time.Duration
}

func (d *slow) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	res, err := d.Driver.Try(ctx, r)
	time.Sleep(d.wait)
	return res, err
}

// The same of the answer to a Downgrade.
func TestLateDowngradeRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slow{Driver: memdriver.New()}
		c, err := New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lease, err := c.RWMutex("k", nil).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.core.renewer.Remove(lease.h) // a loop that does not run
		time.Sleep(DefaultTTL - time.Second)
		d.wait = 2 * time.Second
		if err := lease.Downgrade(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("the downgrade: %v, want ErrLost", err)
		}
		d.wait = 0
		if err := lease.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("the lease: %v, want ErrLost", err)
		}
	})
}

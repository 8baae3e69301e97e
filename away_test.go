// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/memdriver"
)

// away are the two ways in which a store may be away.
var away = map[string]func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error){
	"refused": func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
		return driver.Result{}, errDown
	},
	"silent": hangTry,
}

// eachAway runs f with a driver whose store is away, from the first call on, and
// again with one that holds "k" and goes away while another waits for it. back
// ends that.
func eachAway(t *testing.T, o *hasp.Options, f func(t *testing.T, c *hasp.Client, back func())) {
	for name, try := range away {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, known before: %t", name, known), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := &hooked{Driver: newStore(), classify: func(error) driver.Class { return driver.ClassUnreachable }}
					c := newClient(t, d, o)
					if known {
						lock(t, newClient(t, d.Driver, nil), "k", &hasp.LockOptions{NoRenew: true})
						_, err := c.Mutex("k", nil).TryLock(t.Context())
						wantIs(t, err, hasp.ErrHeld)
					}
					d.change(func() { d.try = try })
					f(t, c, func() { d.change(func() { d.try = nil }) })
				})
			})
		}
	}
}

// Promise 8: a store that is away is waited for, however long, and whoever looks
// is told.
func TestStoreAwayIsWaitedFor(t *testing.T) {
	var told atomic.Int64
	o := &hasp.Options{Observe: func(e hasp.Event) {
		if e.Kind == hasp.EventTrouble {
			told.Store(int64(e.Waited))
		}
	}}
	eachAway(t, o, func(t *testing.T, c *hasp.Client, back func()) {
		const outage = 20 * time.Minute
		start := time.Now()
		time.AfterFunc(outage, back)
		lease := lock(t, c, "k", nil)
		if took := time.Since(start); took < outage || took > outage+10*time.Second {
			t.Errorf("Lock took %v beside an outage of %v", took, outage)
		}
		if last := time.Duration(told.Load()); last < outage-10*time.Second {
			t.Errorf("nothing was told of the outage after %v", last)
		}
		release(t, lease)
	})
}

// Promise 8: a wait that ends while the store is away says so.
func TestContextEndsWhileTheStoreIsAway(t *testing.T) {
	eachAway(t, nil, func(t *testing.T, c *hasp.Client, _ func()) {
		for _, wait := range []time.Duration{time.Second, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			start := time.Now()
			_, err := c.Mutex("k", nil).Lock(ctx)
			wantIs(t, err, context.DeadlineExceeded)
			if took := time.Since(start); took != wait {
				t.Errorf("a Lock for %v took %v", wait, took)
			}
			var e *hasp.Error
			var w *hasp.WaitError
			if !errors.As(err, &e) || e.Class != hasp.ClassUnreachable || !errors.As(err, &w) || errors.Is(err, hasp.ErrHeld) {
				t.Errorf("after %v the error is %v", wait, err)
			}
		}
	})
}

// MaxSilence bounds the wait for a store that is away.
func TestMaxSilence(t *testing.T) {
	const most = 20 * time.Second
	eachAway(t, &hasp.Options{MaxSilence: most}, func(t *testing.T, c *hasp.Client, _ func()) {
		start := time.Now()
		_, err := c.Mutex("k", nil).Lock(t.Context())
		var e *hasp.Error
		if !errors.As(err, &e) || e.Class != hasp.ClassUnreachable {
			t.Fatalf("the error is %v", err)
		}
		if took := time.Since(start); took < most*8/10 || took > most {
			t.Errorf("%v after %v, want about %v", err, took, most)
		}
	})
	if _, err := hasp.New(newStore(), &hasp.Options{MaxSilence: -1}); err == nil {
		t.Error("a negative MaxSilence was taken")
	}
}

// Promise 8: what no engine knows is no absence, and may stay for ever.
func TestUnknownErrorsEndLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		var class atomic.Int64
		d.classify = func(error) driver.Class { return driver.Class(class.Load()) }
		d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{}, errDown
		}
		c := newClient(t, d, nil)
		const outage = 20 * time.Minute // before that
		class.Store(int64(driver.ClassUnreachable))
		time.AfterFunc(outage, func() { class.Store(int64(driver.ClassUnknown)) })
		start := time.Now()
		_, err := c.Mutex("k", nil).Lock(t.Context())
		wantIs(t, err, errDown)
		if took := time.Since(start) - outage; took < ttl*8/10 || took > ttl+2*time.Second {
			t.Errorf("%v after %v of unknown errors, want about the TTL of %v", err, took, ttl)
		}
	})
}

// Promise 8: a store that is held back after a restart is waited for.
func TestHeldBackStoreIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Minute})
		var told []time.Duration
		c := newClient(t, store, &hasp.Options{Observe: func(e hasp.Event) {
			if e.Kind == hasp.EventTrouble {
				told = append(told, e.Left)
			}
		}})
		start := time.Now()
		release(t, lock(t, c, "k", nil))
		if took, wait := time.Since(start), admission.Wait(time.Minute); took < wait || took > wait+1500*time.Millisecond { // one pause
			t.Errorf("Lock took %v beside a wait of %v", took, wait)
		}
		if len(told) == 0 || told[0] < time.Minute || told[len(told)-1] > 2*time.Second {
			t.Errorf("told of %v left", told)
		}
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/memdriver"
)

var must = expect.Need

// twisted is a store in memory with something wrong. Several clients may close it.
type twisted struct {
	driver.Driver
	traits  func(*driver.Traits)
	deaf    bool // no hint comes
	forgets bool // leases are free at once
	keeps   bool // leases never expire
	fence   uint64
	fails   bool // at the second question
	asked   int
}

func (w *twisted) Traits() driver.Traits {
	t := w.Driver.Traits()
	if w.traits != nil {
		w.traits(&t)
	}
	return t
}

func (w *twisted) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	if w.keeps {
		r.TTL = time.Hour
	}
	if w.asked++; w.fails && w.asked > 1 {
		return driver.Result{}, driver.ErrUnsupported
	}
	res, err := w.Driver.Try(ctx, r)
	if w.fence > 0 {
		res.Fence, w.fence = w.fence, w.fence-1
	}
	if w.forgets && res.Granted {
		err = errors.Join(err, w.Driver.Release(ctx, driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL}))
	}
	return res, err
}

func (w *twisted) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if w.deaf {
		return nil, nil
	}
	return w.Driver.Watch(ctx, c)
}

func (*twisted) Close() error { return nil }

// tried is what the trial finds with two clients of these stores.
func tried(t *testing.T, ctx context.Context, first, second driver.Driver) []doctor.Finding {
	t.Helper()
	u, err := store.Parse("sqlite:/nowhere")
	must(t, err)
	c, err := hasp.New(first, nil)
	must(t, err)
	defer c.Close()
	x := &examination{ctx: ctx, l: &base.Locks{Client: c, URL: u, Store: &store.Store{Driver: first, NoMessages: ": the reason"}},
		second: func() (*store.Store, error) { return &store.Store{Driver: second}, nil }}
	_ = x.try() // what fails is found, too
	return x.found
}

func TestTrial(t *testing.T) {
	const minute = time.Minute
	for name, c := range map[string]struct {
		store *twisted
		apart bool // the second client uses another store
		fails bool // it cannot ask this one twice
		level operator.Level
		check string
		text  string
	}{
		"well, handoff":  {level: doctor.OK, check: "handoff", text: "told by a message"},
		"well, expiry":   {level: doctor.OK, check: "expiry", text: "a lease of 1s that nobody renewed went to a waiter"},
		"well, fence":    {level: doctor.OK, check: "fence", text: "fences rose with each of 5 grants"},
		"a longer lease": {store: &twisted{traits: func(t *driver.Traits) { t.MinTTL = minute }}, level: doctor.OK, check: "expiry", text: "a lease of 1m0s that"},
		"a shorter one":  {store: &twisted{traits: func(t *driver.Traits) { t.MaxTTL = minute / 100 }}, level: doctor.OK, check: "expiry", text: "a lease of 600ms that"},
		"polls":          {store: &twisted{deaf: true, traits: func(t *driver.Traits) { t.Tells &^= driver.TellsFree }}, level: doctor.OK, check: "handoff", text: "by polling, as this store sends no messages"},
		"no message":     {store: &twisted{deaf: true}, level: doctor.Warn, check: "handoff", text: "but by polling: no message told it. Messages of this store do not come through: the reason"},
		"no fences":      {store: &twisted{traits: func(t *driver.Traits) { t.Fencing = false }}, level: doctor.OK, check: "fence", text: "have no fences"},
		"fences fall":    {store: &twisted{fence: 100}, level: doctor.Fail, check: "fence", text: "a holder had 100, and the next one 9"},
		"two hold it":    {apart: true, level: doctor.Fail, check: "handoff", text: "two held it at once"},
		"too early":      {apart: true, level: doctor.Fail, check: "expiry", text: "too early"},
		"forgets":        {store: &twisted{forgets: true}, level: doctor.Fail, check: "lock", text: "no longer holds the key"},
		"a call fails":   {fails: true, level: doctor.Fail, check: "handoff", text: "the wait of a second client for the key failed, so no handoff was seen: "},
		"no expiry":      {fails: true, level: doctor.Fail, check: "expiry", text: "the wait of a second client for the key failed, so no expiry was seen: "},
		"never expires":  {store: &twisted{keeps: true}, level: doctor.Fail, check: "expiry", text: "did not expire within 21s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := &twisted{}
				if c.store != nil {
					first = c.store
				}
				first.Driver = memdriver.New()
				second := first
				if c.fails {
					second = &twisted{Driver: first.Driver, fails: true}
				}
				if c.apart {
					second = &twisted{Driver: memdriver.New()}
				}
				found := tried(t, t.Context(), first, second)
				if !slices.ContainsFunc(found, func(f doctor.Finding) bool {
					return f.Level == c.level && f.Check == c.check && strings.Contains(f.Text, c.text)
				}) {
					t.Errorf("no finding %s %s %q in %+v", c.level, c.check, c.text, found)
				}
			})
		})
	}
}

// A signal ends the trial at any moment, and what it acquired is released.
func TestTrialIsInterrupted(t *testing.T) {
	for after := time.Duration(0); after < 1200*time.Millisecond; after += 150 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			mem := memdriver.New()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			for _, f := range tried(t, ctx, &twisted{Driver: mem}, &twisted{Driver: mem}) {
				if f.Level == doctor.Fail {
					t.Errorf("after %v: %+v", after, f)
				}
			}
			synctest.Wait()
			for info, err := range mem.List(t.Context(), "") {
				t.Errorf("after %v it left %+v, %v", after, info, err)
			}
		})
	}
}

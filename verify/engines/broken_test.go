// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
)

// Rule: what the sweep looks for it finds, when a driver does it.
func TestBrokenDriversAreCaught(t *testing.T) {
	t.Parallel()
	store := Start(t, Etcd)
	for _, c := range []struct {
		name, op, want string
		broken         func(driver.Driver) driver.Driver
	}{
		{"every error is one of a request that was not sent", "Try", "not to be sent", func(d driver.Driver) driver.Driver { return neverSent{d} }},
		{"each Try has an owner of its own", "Try", "asked again", func(d driver.Driver) driver.Driver { return newOwners{d} }},
		{"a release has no answer, and is believed", "Release", "it was released, and", func(d driver.Driver) driver.Driver { return trusting{d} }},
		{"a renewal without an answer is a loss", "Renew", "it is said not to be held", func(d driver.Driver) driver.Driver { return anxious{d} }},
		{"no hints", "Watch and join", "got no hint", func(d driver.Driver) driver.Driver { return deaf{d} }},
		{"a release frees the key whoever holds it", "Release", "took the next one's lease", func(d driver.Driver) driver.Driver { return blind{d} }},
		{"fences fall", "Try", "came after", func(d driver.Driver) driver.Driver { return falling{d} }},
		{"one holder more", "Renew", "another owner asks", func(d driver.Driver) driver.Driver { return generous{d} }},
		{"what was not released", "Inspect", "at the end it is held", func(d driver.Driver) driver.Driver { return leaving{d} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var text string
			for range 5 { // which messages travel together differs, and so what a cut hits
				got := Sweep(t, store, Sweeping{Cuts: []Cut{Lost, Late}, Ops: []string{c.op}, Beside: 4, First: true, Broken: c.broken})
				if text = strings.Join(got.Found, "\n"); strings.Contains(text, c.want) {
					return
				}
			}
			t.Errorf("found %q, want %q", text, c.want)
		})
	}
}

type neverSent struct{ driver.Driver }

func (d neverSent) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	res, err := d.Driver.Try(ctx, r)
	return res, driver.NotSent(err)
}

type newOwners struct{ driver.Driver }

func (d newOwners) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	if ctx.Err() == nil {
		r.Owner = rand.Text()
	}
	return d.Driver.Try(ctx, r)
}

type trusting struct{ driver.Driver }

func (d trusting) Release(ctx context.Context, r driver.ReleaseRequest) error {
	_ = d.Driver.Release(ctx, r) // that is its fault
	return nil
}

type anxious struct{ driver.Driver }

func (d anxious) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	for i := range rs {
		d.Driver.Renew(ctx, rs[i:i+1], func(_ int, r driver.Renewal) {
			if r.Err != nil {
				r.Err = driver.ErrNotHeld
			}
			done(i, r)
		})
	}
}

type deaf struct{ driver.Driver }

func (d deaf) Watch(context.Context, driver.Claim) (<-chan struct{}, error) {
	return make(chan struct{}), nil
}

type blind struct{ driver.Driver }

func (d blind) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if info, err := d.Inspect(ctx, r.Key); err == nil && info.Held {
		r.Owner, r.Label = info.Holder.Owner, info.Holder.Label
	}
	return d.Driver.Release(ctx, r)
}

type falling struct{ driver.Driver }

func (d falling) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	res, err := d.Driver.Try(ctx, r)
	res.Fence *= 2
	return res, err
}

type generous struct{ driver.Driver }

func (d generous) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	for i, r := range rs {
		_ = d.Release(ctx, driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, Settled: true}) // that is its fault
		done(i, driver.Renewal{TTL: r.TTL})
	}
}

type leaving struct{ driver.Driver }

func (d leaving) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if _, err := d.Try(ctx, driver.TryRequest{Claim: driver.Claim{Key: key, Owner: rand.Text(), Label: "left"}, TTL: lasts, Queue: true, Patience: lasts}); err != nil {
		return driver.Info{}, err
	}
	return d.Driver.Inspect(ctx, key)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"context"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// fault changes what a client asks of its store, and the answers it gets, to show that
// each oracle notices.
type fault struct {
	ask     func(r *contend.Owner)
	receive func(res *driver.Result)
	ttl     func(d *time.Duration) // of what is granted and renewed
	free    bool                   // releases are dropped
	noHints bool                   // hints are dropped
}

// faults are by name.
var faults = map[string]fault{
	"one more than the limit": {ask: func(r *contend.Owner) {
		if r.Limit > 0 {
			r.Limit++
		}
	}},
	"one slot for all": {receive: func(res *driver.Result) { res.Slot = 0 }},
	"writers share":    {ask: func(r *contend.Owner) { r.Mode, r.Convert = driver.Shared, false }},
	"fences fall":      {ask: func(r *contend.Owner) { r.Fence = mirror(r.Fence) }, receive: func(res *driver.Result) { res.Fence = mirror(res.Fence) }},
	"leases too long":  {ttl: func(d *time.Duration) { *d *= 4 }},
	"deaths hidden":    {receive: func(res *driver.Result) { res.Abandoned = false }},
	"deaths made up":   {receive: func(res *driver.Result) { res.Abandoned = true }},
	"nothing released": {ask: func(r *contend.Owner) { r.TTL = time.Hour }, free: true},
	"no hints":         {receive: func(res *driver.Result) { res.RetryIn = 0 }, noHints: true},
	"the dead hold on": {ask: func(r *contend.Owner) { r.TTL = time.Hour }},
}

// mirror makes a rising fence fall; mirrored again it is what it was.
func mirror(fence uint64) uint64 {
	if fence == 0 {
		return 0
	}
	return 1<<62 - fence
}

// faulty wraps a driver with the named fault; an empty name means none.
func faulty(d driver.Driver, name string) (driver.Driver, error) {
	f, ok := faults[name]
	switch {
	case name == "":
		return d, nil
	case !ok:
		return nil, fmt.Errorf("no fault is called %q", name)
	}
	return &broken{d, f}, nil
}

// broken is a driver with a fault.
type broken struct {
	driver.Driver
	f fault
}

func (b *broken) request(r contend.Owner) contend.Owner {
	if b.f.ask != nil {
		b.f.ask(&r)
	}
	return r
}

func (b *broken) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	res, err := b.Driver.Try(ctx, b.request(contend.OfVote(driver.VoteRequest{TryRequest: r})).Vote().TryRequest)
	if b.f.receive != nil {
		b.f.receive(&res)
	}
	if b.f.ttl != nil {
		b.f.ttl(&res.TTL)
	}
	return res, err
}

func (b *broken) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	asked := make([]contend.Owner, len(rs))
	for i, r := range rs {
		asked[i] = b.request(contend.OfRenewal(r))
	}
	contend.Renew(ctx, b.Driver, asked, func(i int, r driver.Renewal) {
		if b.f.ttl != nil {
			b.f.ttl(&r.TTL)
		}
		done(i, r)
	})
}

func (b *broken) Watch(ctx context.Context, r driver.Claim) (<-chan struct{}, error) {
	hints, err := b.Driver.Watch(ctx, r)
	if b.f.noHints {
		hints = make(chan struct{})
	}
	return hints, err
}

func (b *broken) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if b.f.free {
		return nil
	}
	return contend.Release(ctx, b.Driver, b.request(contend.OfWithdrawal(driver.WithdrawRequest{ReleaseRequest: r})))
}

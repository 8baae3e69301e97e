// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// loneVariants are hasp on one server with a safeguard taken out.
var loneVariants = []*variant{
	{name: "renewals counted from the answer", whole: func(d driver.Driver, _ any) driver.Driver { return lateRenew{d} }, plan: slowLinks, oracle: Told},
	{name: "leases without drift", whole: func(d driver.Driver, _ any) driver.Driver { return noDrift{d} }, plan: calm, oracle: Told},
	{name: "renewals without an answer count", whole: func(d driver.Driver, _ any) driver.Driver { return trusting{d} }, plan: cutOff, oracle: Told},
	{name: "a release that compares nothing", node: func(n member, _ any) member { return blindRelease{n} }, plan: impatient, oracle: Exclusion},
	{name: "nobody woken", whole: func(d driver.Driver, _ any) driver.Driver { return silence{d} }, plan: calm, oracle: Idle},
}

// scripted is a schedule of some faults, and of two seconds at least.
func scripted(actions ...Action) *Schedule {
	return &Schedule{Store: Redis, MaxTTL: time.Second, Keep: [nodes]Persistence{KeepNothing}, Strict: true, Long: 12,
		Actions: append(actions, idler(2*time.Second))}
}

// idler does nothing at a moment.
func idler(at time.Duration) Action { return Action{At: at, Kind: ResetLinks, Part: Prepare} }

func calm() *Schedule { return scripted() }

// spell is a fault of the links of some clients.
func spell(k Kind, from, to, by time.Duration, of ...int) (all []Action) {
	for _, c := range of {
		all = append(all, Action{At: from, Kind: k, Part: Begin, Nodes: []int{0}, Client: c, By: by})
	}
	for _, c := range of {
		all = append(all, Action{At: to, Kind: k, Part: End, Nodes: []int{0}, Client: c})
	}
	return all
}

// slowLinks: round trips of 200 ms, and holds of several renewals.
func slowLinks() *Schedule {
	s := scripted(spell(Delay, 0, 2*time.Second, 200*time.Millisecond, 0, 1, 2, 3)...)
	s.Long = 1
	return s
}

// cutOff: holders of long leases are cut off.
func cutOff() *Schedule {
	s := scripted(spell(Partition, 0, 1500*time.Millisecond, 0, 0, 1, 2, 3)...)
	s.Long = 1
	return s
}

// impatient: long holds, and waiters who give up.
func impatient() *Schedule {
	s := scripted(idler(6 * time.Second))
	s.Long, s.Hasty = 3, true
	return s
}

// mortal forgets whom it released.
type mortal struct{ member }

func (m mortal) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	r.Settled = true
	return m.member.Withdraw(ctx, r)
}

// silence gives no hints.
type silence struct{ driver.Driver }

func (s silence) Watch(ctx context.Context, c driver.Claim) (<-chan struct{}, error) {
	if _, err := s.Driver.Watch(ctx, c); err != nil {
		return nil, err
	}
	return make(chan struct{}), nil
}

// trusting takes no answer to a renewal for a good one.
type trusting struct{ driver.Driver }

func (t trusting) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	got := make([]atomic.Bool, len(rs))
	t.Driver.Renew(ctx, rs, func(i int, r driver.Renewal) {
		if r.Err == nil || errors.Is(r.Err, driver.ErrNotHeld) {
			got[i].Store(true)
			done(i, r)
		}
	})
	for i, r := range rs {
		if !got[i].Load() {
			done(i, driver.Renewal{TTL: r.TTL})
		}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// loneVariants are hasp on one server with a safeguard removed.
var loneVariants = []*variant{
	{name: "renewals counted from the answer", whole: func(d driver.Driver, _ any) driver.Driver { return lateRenew{d} }, plan: slowLinks, oracle: TimelyEnd},
	{name: "leases without drift", whole: func(d driver.Driver, _ any) driver.Driver { return noDrift{d} }, plan: calm, oracle: TimelyEnd},
	{name: "who enters counts from when the message came", whole: func(d driver.Driver, _ any) driver.Driver { return newLateEnter(d) }, plan: slowHandoffs, oracle: TimelyEnd},
	{name: "renewals without an answer count", whole: func(d driver.Driver, _ any) driver.Driver { return assumeRenewed{d} }, plan: cutOff, oracle: TimelyEnd},
	{name: "a release that compares nothing", node: func(n member, _ any) member { return blindRelease{n} }, plan: impatient, oracle: Exclusion},
	{name: "no hints", whole: func(d driver.Driver, _ any) driver.Driver { return noHints{d} }, plan: unheard, oracle: Idle},
}

// scripted returns a schedule of some faults, of at least two seconds.
func scripted(actions ...Action) *Schedule {
	return &Schedule{Store: Redis, MaxTTL: time.Second, Keep: [nodes]Persistence{KeepNothing}, Strict: true, Long: 12,
		Actions: append(actions, noop(2*time.Second))}
}

// noop is an action without effect.
func noop(at time.Duration) Action { return Action{At: at, Kind: ResetLinks, Part: Prepare} }

func calm() *Schedule { return scripted() }

// unheard: a waiter that hears nothing asks once in a third of its TTL, and that must be long beside what a slow machine
// takes, which the oracle subtracts.
func unheard() *Schedule {
	s := scripted(noop(3 * time.Second))
	s.MaxTTL, s.Longest = 6*time.Second, 3*time.Second
	return s
}

// linkFault returns the actions of a fault of some clients' links.
func linkFault(k Kind, from, to, by time.Duration, of ...int) (all []Action) {
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
	s := scripted(linkFault(Delay, 0, 2*time.Second, 200*time.Millisecond, 0, 1, 2, 3)...)
	s.Long = 1
	return s
}

// slowHandoffs: round trips of 100 ms, and short holds of many waiters.
func slowHandoffs() *Schedule {
	return scripted(linkFault(Delay, 0, 6*time.Second, 50*time.Millisecond, 0, 1, 2, 3)...)
}

// cutOff: holders of long leases are cut off.
func cutOff() *Schedule {
	s := scripted(linkFault(Partition, 0, 1500*time.Millisecond, 0, 0, 1, 2, 3)...)
	s.Long = 1
	return s
}

// impatient: long holds, and waiters that give up.
func impatient() *Schedule {
	s := scripted(noop(6 * time.Second))
	s.Long, s.Hasty = 3, true
	return s
}

// noTombstones does not remember released owners.
type noTombstones struct{ member }

func (m noTombstones) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	r.Settled = true
	return m.member.Withdraw(ctx, r)
}

// noHints gives no hints.
type noHints struct{ driver.Driver }

func (s noHints) Watch(ctx context.Context, c driver.Claim) (<-chan struct{}, error) {
	if _, err := s.Driver.Watch(ctx, c); err != nil {
		return nil, err
	}
	return make(chan struct{}), nil
}

// lateEnter counts the lease of a handover from when its message came.
type lateEnter struct {
	driver.Driver
	mu   sync.Mutex
	seen map[string]refusal // by owner
}

func newLateEnter(d driver.Driver) *lateEnter {
	return &lateEnter{Driver: d, seen: map[string]refusal{}}
}

func (l *lateEnter) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	sent := now()
	res, err := l.Driver.Try(ctx, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[r.Owner] = refusal{sent, res.At}
	return res, err
}

func (l *lateEnter) Handed(c driver.Claim) (driver.Handover, bool) {
	to, ok := handed(l.Driver, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen[c.Owner]
	to.At = seen.at + now().Sub(seen.sent)
	return to, ok
}

// assumeRenewed counts a renewal without an answer as successful.
type assumeRenewed struct{ driver.Driver }

func (t assumeRenewed) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
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

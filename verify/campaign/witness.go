// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/verify/broken"
)

// Mono is an instant of the clock that all processes share.
type Mono = player.Mono

func now() Mono { return player.Now() }

// never is the return time of an operation that may take effect at any time.
const never Mono = math.MaxInt64

// drift is by how much a lease is shorter than its TTL, because clocks differ.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// member is a server that can be a node of a quorum.
type member = broken.Node

// witness wraps hasp's engine, and computes how late the deadline of each lease may be: the TTL that the engine reported, less the
// drift, counted from before the request. A lease that was handed over counts as if the Try that was refused before had granted it
// until its end. It also reports when the store has answered a release.
type witness struct {
	report func(player.Event) // set before a request
	slow   atomic.Int64       // ns, see usual

	mu     sync.Mutex
	n      int // the order that the next new owner belongs to
	owners map[string]*seen
}

// seen is what is known of an owner.
type seen struct {
	n    int  // the order that it belongs to
	most Mono // the latest that its deadline may be
	// Its latest Try that was refused: when that was sent, and when that was on the store's clock.
	sent Mono
	at   time.Duration
}

func newWitness() *witness { return &witness{owners: map[string]*seen{}} }

// takes records that an order begins.
func (w *witness) takes(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n = n
}

// note changes what is known of an owner, and returns it.
func (w *witness) note(owner string, change func(*seen)) seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.owners[owner]
	if o == nil {
		o = &seen{}
		w.owners[owner] = o
	}
	change(o)
	return *o
}

func (w *witness) of(owner string) seen { return w.note(owner, func(*seen) {}) }

// granted notes a lease of this TTL that was asked for at an instant.
func (w *witness) granted(owner string, at Mono, ttl time.Duration) {
	w.note(owner, func(o *seen) { o.most = max(o.most, at.Add(ttl-drift(ttl))) })
}

// usual is how long a call may take before it counts as slow.
const usual = 10 * time.Millisecond

func (w *witness) took(since Mono) { w.slow.Add(int64(max(0, now().Sub(since)-usual))) }

// around wraps a driver.
func (w *witness) around(d driver.Driver) driver.Driver {
	if t, ok := d.(driver.Teller); ok {
		return watchedTeller{watched{d, w}, t}
	}
	return watched{d, w}
}

// watchedTeller is a watched driver that hears of losses.
type watchedTeller struct {
	watched
	driver.Teller
}

type watched struct {
	driver.Driver
	by *witness
}

func (d watched) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	d.by.note(r.Owner, func(o *seen) { o.n = cmp.Or(o.n, d.by.n) })
	at := now()
	res, err := d.Driver.Try(ctx, r)
	d.by.took(at)
	switch {
	case err == nil && res.Granted:
		d.by.granted(r.Owner, at, res.TTL)
	case err == nil:
		d.by.note(r.Owner, func(o *seen) { o.sent, o.at = at, res.At })
	}
	return res, err
}

func (d watched) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	hints, err := d.Driver.Watch(ctx, c)
	return fault.Relay(ctx, hints, func(h driver.Hint) (driver.Hint, bool) {
		if o := d.by.of(c.Owner); h.Handover.Fence != 0 && o.at != 0 {
			d.by.granted(c.Owner, o.sent, h.Handover.At-o.at+h.Handover.TTL)
		}
		return h, true
	}), err
}

func (d watched) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	at := now()
	defer d.by.took(at)
	d.Driver.Renew(ctx, rs, func(i int, r driver.Renewal) {
		if r.Err == nil && !rs[i].Queue {
			d.by.granted(rs[i].Owner, at, r.TTL)
		}
		done(i, r)
	})
}

func (d watched) Release(ctx context.Context, r driver.ReleaseRequest) error {
	at := now()
	err := d.Driver.Release(ctx, r)
	d.by.took(at)
	if n := d.by.of(r.Owner).n; n != 0 && (err == nil || errors.Is(err, driver.ErrNotHeld)) {
		d.by.report(player.Event{What: player.Gone, N: n, Key: r.Key, Owner: r.Owner})
	}
	return err
}

// witnessed is a watched node, which hasp can admit.
type witnessed struct {
	driver.Driver
	node member
}

func (w witnessed) Record(ctx context.Context) (voting.Record, error) { return w.node.Record(ctx) }

func (w witnessed) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	return w.node.Admit(ctx, r, maxTTL)
}

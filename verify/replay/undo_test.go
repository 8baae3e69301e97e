// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
)

// What undoes a safeguard of a node, by what stands around it.

// around makes a rule of a wrapper that is the same for all.
func around(f func(n driver.Node) driver.Node) func(*world, driver.Node, int, int) driver.Node {
	return func(_ *world, n driver.Node, _, _ int) driver.Node { return f(n) }
}

// loose grants proposals that the node refuses for their fences, where which says
// so: for a larger one, of which nobody hears.
type loose struct {
	driver.Node
	which func(r driver.Request) bool
}

func (l loose) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	res, err := l.Node.Try(ctx, r)
	if err != nil || res.Granted || res.Why != driver.FenceTooLow || !l.which(r) {
		return res, err
	}
	told := r.Fence
	r.Fence, r.Restore, r.Raise = res.Fence+1, false, false
	if res, err = l.Node.Try(ctx, r); res.Granted {
		res.Fence, res.Fences = told, max(r.Fences, 1)
	}
	return res, err
}

func anyFence(n driver.Node) driver.Node {
	return loose{n, func(r driver.Request) bool { return r.Key == key }}
}

func anyRestore(n driver.Node) driver.Node {
	return loose{n, func(r driver.Request) bool { return r.Restore }}
}

// echo answers a holder with what it proposes, which the node does not keep.
type echo struct{ driver.Node }

func (e echo) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	told := r.Fence
	r.Raise = false
	res, err := e.Node.Try(ctx, r)
	if res.Granted {
		res.Fence = told
	}
	return res, err
}

// lowered takes a lower fence of the holder for all that is remembered.
type lowered struct {
	driver.Node
	memory *uint64
}

func (l lowered) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	n := loose{l.Node, func(r driver.Request) bool { return *l.memory != 0 && r.Fence > *l.memory }}
	res, err := n.Try(ctx, r)
	if res.Granted && res.Fence > r.Fence {
		*l.memory = r.Fence
	}
	return res, err
}

// fullRow answers with as many fences as were asked for.
type fullRow struct{ driver.Node }

func (f fullRow) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	res, err := f.Node.Try(ctx, r)
	res.Fences = r.Fences
	return res, err
}

// eager has a node vote once it was up for so long, whatever it forgot.
type eager struct {
	driver.Node
	up     func() time.Duration
	least  time.Duration
	maxTTL time.Duration
}

func (e eager) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	if _, err := e.Record(ctx); err != nil {
		return driver.Result{}, err
	}
	return e.Node.Try(ctx, r)
}

func (e eager) Record(ctx context.Context) (driver.Record, error) {
	rec, err := e.Node.Record(ctx)
	if err != nil || rec.Voting || e.up() < e.least {
		return rec, err
	}
	if err := e.Admit(ctx, rec, e.maxTTL); err != nil {
		return rec, err
	}
	return e.Node.Record(ctx)
}

// atOnce has restarted nodes vote; byUptime those that are up for long enough.
func atOnce(w *world, n driver.Node, _, i int) driver.Node {
	return eager{n, w.nodes[i].uptime, 0, w.maxTTL(0)}
}

func byUptime(w *world, n driver.Node, _, i int) driver.Node {
	return eager{n, w.nodes[i].uptime, w.maxTTL(0), w.maxTTL(0)}
}

// lowers has nodes take a lower fence.
func lowers(w *world, n driver.Node, _, i int) driver.Node { return lowered{n, &w.memory[i]} }

// forgetful remembers no release.
type forgetful struct{ driver.Node }

func (f forgetful) Release(ctx context.Context, r driver.Request) error {
	r.Settled = true
	return f.Node.Release(ctx, r)
}

// nameless hides which store it is.
type nameless struct{ driver.Node }

func (n nameless) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	res, err := n.Node.Try(ctx, r)
	res.Node = ""
	return res, err
}

func (n nameless) Record(ctx context.Context) (driver.Record, error) {
	rec, err := n.Node.Record(ctx)
	rec.Node = ""
	return rec, err
}

// blunt gives a vote back whatever its fence.
type blunt struct{ driver.Node }

func (b blunt) Release(ctx context.Context, r driver.Request) error {
	r.UpTo = 0
	return b.Node.Release(ctx, r)
}

// mine has B's client see its own longest lease on all nodes.
type mine struct {
	driver.Node
	maxTTL time.Duration
}

func (m mine) Record(ctx context.Context) (driver.Record, error) {
	rec, err := m.Node.Record(ctx)
	rec.MaxTTL = m.maxTTL
	return rec, err
}

func ownMaxTTL(w *world, n driver.Node, owner, _ int) driver.Node { return mine{n, w.maxTTL(owner)} }

func echoed(n driver.Node) driver.Node  { return echo{n} }
func full(n driver.Node) driver.Node    { return fullRow{n} }
func noTomb(n driver.Node) driver.Node  { return forgetful{n} }
func bluntly(n driver.Node) driver.Node { return blunt{n} }

// hidden hides from A's client which store a node is.
func hidden(_ *world, n driver.Node, owner, _ int) driver.Node {
	if owner == 0 {
		return nameless{n}
	}
	return n
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// nodeCases and recordCases are for drivers that keep a node record
// (driver.Node); with others they are skipped.
var nodeCases = []Case{
	{Name: "NewNodeIsHeldBack",
		Rule: "A new store grants nothing until it is admitted.",
		run:  newNodeIsHeldBack},
	{Name: "RestartedNodeIsHeldBack",
		Rule: "A store whose process was replaced by one without data grants, keeps and prolongs nothing until it is admitted.",
		run:  func(e *env) { isHeldBack(e, e.restart()) }},
	{Name: "FlushedNodeIsHeldBack",
		Rule: "A store that lost all its data grants, keeps and prolongs nothing until it is admitted.",
		run:  func(e *env) { isHeldBack(e, e.flush()) }},
	{Name: "HeldBackNodeHandsNothingOn",
		Rule: "A store whose process was replaced hands nothing off until it is admitted, neither at a Release nor when a lease expires.",
		run:  heldBackHandsNothingOn},
	{Name: "HeldBackNodeProlongsNothing",
		Rule: "A store whose process was replaced prolongs no lease that it still has until it is admitted: a renewal is an error that does not say whether the owner still has it.",
		run:  heldBackProlongsNothing},
}

// heldBack fails unless the store refuses every kind of Try for the key, and
// gives nobody a place.
func (e *env) heldBack(d driver.Driver, r contend.Owner) {
	e.Helper()
	before := e.inspect(r.Key)
	for _, fence := range []uint64{0, 1, uint64(time.Now().UnixMicro() + 1000)} {
		r.Fence = fence
		restored := r
		restored.Restore = fence != 0
		for _, r := range []contend.Owner{r, queued(r), restored} {
			if res := e.refuse(d, r); res.Why != driver.NotVoting {
				e.Fatalf("Try with Fence %d: %+v, want NotVoting", fence, res)
			}
		}
	}
	if after := e.inspect(r.Key); after.Waiters != before.Waiters || after.Held != before.Held {
		e.Fatalf("a store that is held back has %+v after a Try, %+v before", after, before)
	}
}

// renewUnknown renews a lease, and must get an error other than ErrNotHeld.
func (e *env) renewUnknown(d driver.Driver, r contend.Owner) {
	e.Helper()
	if err := e.renew(d, r)[0].Err; err == nil || errors.Is(err, driver.ErrNotHeld) {
		e.Fatalf("Renew at a store that is held back: %v, want an error that is not ErrNotHeld", err)
	}
}

// releaseQuietly releases, and must get an answer.
func (e *env) releaseQuietly(d driver.Driver, r contend.Owner) {
	e.Helper()
	if err := contend.Release(e.ctx, d, r); err != nil && !errors.Is(err, driver.ErrNotHeld) {
		e.Fatalf("Release at a store that is held back: %v", err)
	}
}

func newNodeIsHeldBack(e *env) {
	e.node()
	e.store, e.opened = e.made(e.TB), nil
	e.d = e.open()
	e.heldBack(e.d, e.ask("k")) // before anybody read the record
	n := e.node()
	if rec := e.record(n); rec.Voting {
		e.Fatalf("Harness.New admitted the store, which the suite does: %+v", rec)
	}
	e.heldBack(e.open(), e.ask("k"))
	e.admitted(n, e.traits.MaxTTL)
	e.grant(e.d, e.ask("k"))
}

func isHeldBack(e *env, forget func()) {
	n, other := e.node(), e.open()
	a, b := e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	if needQueue.Met(e.d) {
		e.join(other, b, 0)
	}
	forget()
	for _, d := range []driver.Driver{e.d, other} {
		for _, r := range []contend.Owner{a, b, e.ask("k"), e.ask("unseen")} {
			e.heldBack(d, r)
		}
		e.renewUnknown(d, a)
		e.renewUnknown(d, e.ask("unseen"))
	}
	e.waits(n)
	e.heldBack(other, a) // the same with a waiting record
	e.renewUnknown(other, a)
	e.renewNothing(other, queued(b))
	e.releaseQuietly(e.d, a)
	e.releaseQuietly(e.d, b)
	e.free("k")
	e.admitted(n, e.traits.MaxTTL)
	e.renewNothing(e.d, a)
	e.refuse(e.d, a) // it was released
	e.grant(e.d, e.ask("k"))
}

// queueOverReload makes a holder and a waiter, and then replaces the store's process by
// one with its data.
func (e *env) queueOverReload(a, b contend.Owner) {
	e.Helper()
	reload := e.reload()
	if !needQueue.Met(e.d) {
		e.Skipf("%s does not promise this: needs the trait %s", e.traits.Engine, needQueue.Trait)
	}
	e.grant(e.d, a)
	e.join(e.d, b, 0)
	reload()
	if info := e.inspect(a.Key); !info.Held || info.Waiters != 1 {
		e.Fatalf("the store was to have its data: %+v", info)
	}
}

func heldBackHandsNothingOn(e *env) {
	a, b := e.ask("released"), e.ask("released")
	e.queueOverReload(a, b)
	n := e.node()
	e.release(e.d, a)
	if info := e.inspect(a.Key); info.Held {
		e.Fatalf("a store that is held back handed the key off: %+v", info)
	}
	e.heldBack(e.d, b)
	e.admitted(n, e.traits.MaxTTL)
	e.turn(e.d, b, 0)

	a, b = e.brief(e.ask("ended")), e.ask("ended")
	e.queueOverReload(a, b)
	e.expires(a.Key)
	e.heldBack(e.d, b)
	e.admitted(n, e.traits.MaxTTL)
	e.turn(e.d, b, 0)
}

func heldBackProlongsNothing(e *env) {
	reload, n := e.reload(), e.node()
	a := e.brief(e.ask("k"))
	e.grant(e.d, a)
	reload()
	a.TTL = e.long
	for range 2 { // before and after somebody read the record
		e.renewUnknown(e.d, a)
		if left := e.inspect("k").Left; left > e.ttl {
			e.Fatalf("a store that is held back prolonged a lease of %v to %v", e.ttl, left)
		}
		e.waits(n)
	}
	e.expires("k")
	e.renewUnknown(e.d, a)
	e.admitted(n, e.traits.MaxTTL)
	e.renewNothing(e.d, a)
}

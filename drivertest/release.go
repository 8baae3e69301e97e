// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var releaseCases = []Case{
	{Name: "ReleaseFreesTheKey",
		Rule: "After Release the key is free at once, and its next holder learns that nobody abandoned it.",
		run:  releaseFrees},
	{Name: "ReleaseIsTheOwnersAlone", // failure case 33
		Rule: "A Release by anybody but the holder is ErrNotHeld and changes nothing.",
		run:  releaseIsTheOwners},
	{Name: "ReleaseComparesTheLabel",
		Rule: "Owner and Label are compared as a whole: the same owner with another label is another one.",
		run:  releaseComparesTheLabel},
	{Name: "ReleaseTwice", // failure cases 13 and 33
		Rule: "The second Release of one owner is ErrNotHeld, and never affects the next holder.",
		run:  releaseTwice},
	{Name: "LateReleaseSparesTheSuccessor", // failure case 8
		Rule: "An owner whose lease ended cannot release the next holder's.",
		run:  lateRelease},
	{Name: "SettledReleaseIsARelease",
		Rule: "A settled Release, of an owner without pending requests, ends a lease or a place like any other.",
		run:  settledRelease},
	{Name: "SettledOwnerMayAskAgain",
		Rule: "The engine does not remember a settled Release: the same owner may ask again, for the key or for a place.",
		run:  settledAgain},
	{Name: "TryAfterReleaseIsRefused", // failure cases 11 and 13
		Rule: "A Try that arrives after the Release of its owner is refused as such, whether the owner held the key, waited in the queue or had nothing, and leaves no place.",
		run:  tryAfterRelease},
	{Name: "TryLongAfterReleaseIsRefused",
		Rule: "So is one that arrives when the TTL that its owner asked for is over: it may be under way for ten seconds.",
		run:  tryLongAfterRelease},
}

func releaseFrees(e *env) {
	a, b := e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	e.release(e.d, a)
	e.free("k")
	if res := e.grant(e.open(), b); res.Abandoned {
		e.Error("Abandoned, but the holder before released")
	}
	e.heldBy(b)
}

func settledRelease(e *env) {
	a, b, c := e.ask("k"), e.ask("k"), e.ask("k")
	a.Settled, b.Settled, c.Settled = true, true, true
	e.grant(e.d, a)
	if needQueue.Met(e.d) {
		e.join(e.d, b, 0)
		e.join(e.d, c, 1)
		e.release(e.d, b)
	}
	e.releaseNothing(e.d, b)
	e.heldBy(a)
	e.release(e.d, a)
	e.turn(e.d, queued(c), 0)
	e.release(e.d, c)
	e.releaseNothing(e.d, c)
	e.free("k")
}

func settledAgain(e *env) {
	a, b := e.ask("k"), e.ask("k")
	a.Settled, b.Settled = true, true
	for range 3 {
		e.grant(e.d, a)
		e.release(e.d, a)
	}
	e.releaseNothing(e.d, a)
	e.grant(e.d, a)
	if needQueue.Met(e.d) {
		for range 2 {
			e.join(e.d, b, 0)
			e.release(e.d, b)
		}
		e.join(e.d, b, 0)
	}
	e.release(e.d, a)
	e.turn(e.d, b, 0)
}

func releaseIsTheOwners(e *env) {
	a := e.ask("k")
	res := e.grant(e.d, a)
	for _, d := range []driver.Driver{e.d, e.open()} {
		b := e.ask("k")
		e.releaseNothing(d, b)
		b.Label = a.Label
		b.Owner = rand.Text()
		e.releaseNothing(d, b)
	}
	info := e.heldBy(a)
	if !plausible(info.Left, e.long/2) || info.Fence != 0 && info.Fence != res.Fence {
		e.Errorf("somebody else's Release changed the lease: %+v", info)
	}
	e.releaseNothing(e.d, e.ask("nobody's"))
	e.free("nobody's")
}

func releaseComparesTheLabel(e *env) {
	a := e.ask("k")
	e.grant(e.d, a)
	for _, label := range []string{"", "{}", a.Label + " ", a.Label[:len(a.Label)-1]} {
		b := a
		b.Label = label
		e.releaseNothing(e.d, b)
		e.renewNothing(e.d, b)
		e.heldBy(a)
	}
	if e.traits.Queue != driver.QueueNone {
		b := e.ask("k")
		e.join(e.d, b, 0)
		b.Label = "{}"
		e.releaseNothing(e.d, b)
		if info := e.heldBy(a); info.Waiters != 1 {
			e.Errorf("a Release with another label took the place: %+v", info)
		}
	}
	e.release(e.d, a)
}

func releaseTwice(e *env) {
	a, b := e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	e.release(e.d, a)
	e.releaseNothing(e.d, a)
	e.free("k")
	e.grant(e.d, b)
	e.releaseNothing(e.d, a)
	e.heldBy(b)
}

func lateRelease(e *env) {
	a, b := e.brief(e.ask("k")), e.ask("k")
	e.grant(e.d, a)
	e.expires("k")
	e.inherit(e.d, b)
	e.releaseNothing(e.d, a)
	e.heldBy(b)
}

func tryAfterRelease(e *env) {
	refused := func(r contend.Owner) {
		e.Helper()
		for _, r := range []contend.Owner{r, queued(r)} {
			if res := e.refuse(e.open(), r); res.Why != driver.Released {
				e.Errorf("an owner that was released: %+v, want Released", res)
			}
			if info := e.inspect("k"); info.Holder.Owner == r.Owner || info.Waiters != 0 {
				e.Fatalf("an owner that was released is back: %+v", info)
			}
		}
	}
	nothing := e.ask("k")
	e.releaseNothing(e.d, nothing)
	refused(nothing)

	held := e.ask("k")
	e.grant(e.d, held)
	e.release(e.d, held)
	refused(held)
	e.free("k")

	other := e.ask("k")
	e.grant(e.d, other)
	refused(held)
	if e.traits.Queue != driver.QueueNone {
		waits := e.ask("k")
		e.join(e.d, waits, 0)
		e.release(e.d, waits)
		refused(waits)
	}
	e.heldBy(other)
	e.release(e.d, other)
	if err := contend.Release(e.ctx, e.d, held); !errors.Is(err, driver.ErrNotHeld) {
		e.Errorf("Release of the first: %v", err)
	}
	e.free("k")
}

func tryLongAfterRelease(e *env) {
	a, b := e.ask("k"), e.ask("k")
	a.TTL = min(e.ttl, driver.LateRequest/2)
	b.TTL = a.TTL
	e.grant(e.d, a)
	released := time.Now()
	e.release(e.d, a)
	e.grant(e.d, b)
	e.expires("k") // as a's lease would have
	res := e.try(e.d, a)
	if after := time.Since(released); res.Why != driver.Released && after < driver.LateRequest {
		e.Errorf("an owner that was released %v ago, with a TTL of %v: %+v, want Released", after, a.TTL, res)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var releaseCases = []Case{
	{Name: "ReleaseFreesTheKey",
		Rule: "After Release the key is free at once, and its next holder learns that nobody abandoned it.",
		play: "grant a; release a; free; grant b elsewhere clean; held b"},
	{Name: "ReleaseIsTheOwnersAlone", // failure case 33
		Rule: "A Release by anybody but the holder is ErrNotHeld and changes nothing.",
		play: `grant a; release b gone; release c label=a gone; release d elsewhere gone; release e elsewhere=d label=a gone; held a;
			has a full same; release f@free gone; free f@free`},
	{Name: "ReleaseComparesTheLabel",
		Rule: "Owner and Label are compared as a whole: the same owner with another label is another one.",
		play: "grant a;" + each(otherLabels, "release a # gone; renew a # gone; held a") + `queue? join b; queue? release b label={} gone;
			queue? waits b; held a; release a`},
	{Name: "ReleaseTwice", // failure cases 13 and 33
		Rule: "The second Release of one owner is ErrNotHeld, and never affects the next holder.",
		play: "grant a; release a; release a gone; free; grant b; release a gone; held b"},
	{Name: "LateReleaseSparesTheSuccessor", // failure case 8
		Rule: "An owner whose lease ended cannot release the next holder's.",
		play: "grant a brief; expires; inherit b; release a gone; held b"},
	{Name: "SettledReleaseIsARelease",
		Rule: "A settled Release, of an owner without pending requests, ends a lease or a place like any other.",
		play: `grant a settled; queue? join b c settled; queue? release b settled; release b settled gone; held a;
			release a settled; turn c settled; release c settled; release c settled gone; free`},
	{Name: "SettledOwnerMayAskAgain",
		Rule: "The engine does not remember a settled Release: the same owner may ask again, for the key or for a place.",
		play: each(rounds(3), "grant a settled; release a settled") + `release a settled gone; grant a settled;
			queue? join b settled; queue? release b settled; queue? join b settled; queue? release b settled;
			queue? join b settled; release a settled; turn b settled`},
	{Name: "TryAfterReleaseIsRefused", // failure cases 11 and 13
		Rule: "A Try that arrives after the Release of its owner is refused as such, whether the owner held the key, waited in the queue or had nothing, and leaves no place.",
		play: `release a gone; refuse a elsewhere why=released; free; refuse a elsewhere queued why=released; free; grant b; release b;
			refuse b elsewhere why=released; free; refuse b elsewhere queued why=released; free; grant c;
			refuse b elsewhere why=released; held c; waits; refuse b elsewhere queued why=released; held c; waits;
			queue? join d; queue? release d; queue? refuse d elsewhere why=released; waits;
			queue? refuse d elsewhere queued why=released; held c; waits; release c; release b gone=once; free`},
	{Name: "TryLongAfterReleaseIsRefused",
		Rule: "So is one that arrives when the TTL that its owner asked for is over: it may be under way for ten seconds.",
		run:  tryLongAfterRelease},
}

// otherLabels are labels that an owner does not have.
var otherLabels = []string{"label=", "label={}", "label=long", "label=short"}

func tryLongAfterRelease(e *env) {
	a, b := e.ask("k"), e.ask("k")
	a.TTL = min(e.ttl, driver.LateRequest/2)
	b.TTL = a.TTL
	asked := time.Now()
	e.grant(e.d, a)
	released := time.Now()
	// A busy machine may end its lease before, which is as good.
	if err := contend.Release(e.ctx, e.d, a); err != nil && (!errors.Is(err, driver.ErrNotHeld) || time.Since(asked) < a.TTL) {
		e.Fatalf("Release of an owner that asked %v ago, with a TTL of %v: %v", time.Since(asked), a.TTL, err)
	}
	e.grant(e.d, b)
	e.expires("k") // as a's lease would have
	res := e.try(e.d, a)
	if after := time.Since(released); res.Why != driver.Released && after < driver.LateRequest {
		e.Errorf("an owner that was released %v ago, with a TTL of %v: %+v, want Released", after, a.TTL, res)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"time"
)

var sharedKeepCases = []Case{
	{Name: "ModeIsKept",
		Rule:  "The holder's Try in another Mode without Convert is refused, joins no queue, and changes nothing.",
		Needs: shared,
		play: `grant r1; refuse r1 exclusive longer; held r1; waits; has r1 usual; refuse r1 exclusive longer queued; held r1;
			waits; has r1 usual; grant r2; release r1 r2; grant a; refuse a sharing longer; held a; waits; has a usual;
			refuse a sharing longer queued; held a; waits; has a usual; refuse r3; release a; free`},
	{Name: "RenewInWhicheverMode",
		Rule:  "Renew and Release find the owner's lease in whichever Mode they name, and leave the Mode as it is.",
		Needs: shared,
		play: `grant r1; renew r1 exclusive longer; held r1; has r1 longer; grant r2; release r2; release r1 exclusive; free;
			refuse r1; grant a; renew a sharing longer; held a; has a longer; refuse r3; release a sharing; free; refuse a`},
	{Name: "SharedReleaseIsTheOwnersAlone",
		Rule:  "Release by a reader ends its own lease and no other's: the second is ErrNotHeld, and a Try that arrives after it is refused.",
		Needs: shared,
		play: "grant r1..r3 spread; release r4 gone;" + each(otherLabels, "release r2 here # gone; renew r2 here # gone") + `shared r1..r3;
			release r1 elsewhere; release r1 here gone; renew r1 here gone; refuse r1 here; refuse r1 here queued; shared r2 r3; waits;
			release r2 elsewhere; release r2 here gone; renew r2 here gone; refuse r2 here; refuse r2 here queued; shared r3; waits;
			release r3 elsewhere; release r3 here gone; renew r3 here gone; refuse r3 here; refuse r3 here queued; free;
			release r5 gone; refuse r5; free`},
	{Name: "SettledSharerMayAskAgain",
		Rule:  "The engine does not remember a settled Release of a reader: the same owner may ask again.",
		Needs: shared,
		play:  "grant r2;" + each(rounds(3), "grant r1 settled; shared r1 r2; release r1 settled; release r1 settled gone") + "shared r2"},
	{Name: "EachSharerHasItsOwnExpiry",
		Rule:  "A Try or a Renew by a reader sets the expiry of its own lease to a later moment, never to an earlier one, and changes nobody else's.",
		Needs: shared,
		play: `grant r2 r3; grant r2 brief; renew r3 brief; outlasts r2 r3; grant r1 brief; renew r2; grant r3; has r1 perhaps left=ttl;
			grant r1 longer; has r1 longer; renew r2 longer; has r2 longer; has r3 usual`},
	{Name: "SharedLeaseEnds",
		Rule:  "A reader's lease ends after the TTL of its Try, not before, and does not affect the others'.",
		Needs: shared, run: sharedLeaseEnds},
}

func sharedLeaseEnds(e *env) {
	a, b := e.brief(e.reader("k")), e.reader("k")
	e.grant(e.d, b)
	start := time.Now()
	first := e.grant(e.d, a)
	e.eventually(first.TTL, "the lease of one that is gone ends", func() bool { return e.inspect("k").Holds == 1 })
	if took := time.Since(start); took < sure(first.TTL) {
		e.Errorf("it ended after %v, within the TTL of %v", took, first.TTL)
	}
	e.renewNothing(e.d, a)
	e.releaseNothing(e.d, a)
	e.sharedBy(b)
	e.refuse(e.d, e.ask("k"))
	e.release(e.d, b)
	a = e.brief(e.reader("k"))
	e.grant(e.d, a)
	w := e.ask("k")
	e.eventually(e.ttl, "the key of the only one that shared it is free", func() bool { return e.try(e.d, w).Granted })
	e.renewNothing(e.d, a)
	e.heldBy(w)
}

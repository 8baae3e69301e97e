// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var sharedKeepCases = []Case{
	{Name: "ModeIsKept",
		Rule:  "The holder's Try in another Mode without Convert is refused, joins no queue, and changes nothing.",
		Needs: shared, run: modeIsKept},
	{Name: "RenewInWhicheverMode",
		Rule:  "Renew and Release find the owner's lease in whichever Mode they name, and leave the Mode as it is.",
		Needs: shared, run: renewInWhicheverMode},
	{Name: "SharedReleaseIsTheOwnersAlone",
		Rule:  "Release by a reader ends its own lease and no other's: the second is ErrNotHeld, and a Try that arrives after it is refused.",
		Needs: shared, run: sharedReleaseIsTheOwners},
	{Name: "SettledSharerMayAskAgain",
		Rule:  "The engine does not remember a settled Release of a reader: the same owner may ask again.",
		Needs: shared, run: settledSharerAgain},
	{Name: "EachSharerHasItsOwnExpiry",
		Rule:  "A Try or a Renew by a reader sets the expiry of its own lease to a later moment, never to an earlier one, and changes nobody else's.",
		Needs: shared, run: eachSharersExpiry},
	{Name: "SharedLeaseEnds",
		Rule:  "A reader's lease ends after the TTL of its Try, not before, and does not affect the others'.",
		Needs: shared, run: sharedLeaseEnds},
}

// inOtherMode returns r in the other mode.
func inOtherMode(r contend.Owner) contend.Owner {
	if r.Mode == driver.Shared {
		r.Mode = driver.Exclusive
	} else {
		r.Mode = driver.Shared
	}
	return r
}

func modeIsKept(e *env) {
	reads, writes := e.reader("read"), e.ask("written")
	for _, a := range []contend.Owner{reads, writes} {
		e.grant(e.d, a)
		other := inOtherMode(a)
		other.TTL = 2 * e.long
		for _, r := range []contend.Owner{other, queued(other)} {
			e.refuse(e.d, r)
			info := e.heldBy(a)
			if info.Holder.Mode != a.Mode || info.Waiters != 0 || info.Holds != 1 || info.Left > e.long {
				e.Fatalf("after a Try in another Mode: %+v", info)
			}
		}
	}
	e.grant(e.d, e.reader("read"))
	e.refuse(e.d, e.reader("written"))
	e.release(e.d, reads)
	e.release(e.d, writes)
	e.free("written")
}

func renewInWhicheverMode(e *env) {
	reads, writes := e.reader("read"), e.ask("written")
	for _, a := range []contend.Owner{reads, writes} {
		e.grant(e.d, a)
		other := inOtherMode(a)
		other.TTL = 2 * e.long
		if res := e.renewed(e.d, other); res.TTL <= e.long {
			e.Errorf("asked for %v in another Mode, renewed for %v", other.TTL, res.TTL)
		}
		if info := e.heldBy(a); info.Holder.Mode != a.Mode || !plausible(info.Left, e.long) {
			e.Errorf("renewed for %v in another Mode: %+v", other.TTL, info)
		}
		if b := e.reader(a.Key); a.Mode == driver.Shared {
			e.grant(e.d, b)
			e.release(e.d, b)
		} else {
			e.refuse(e.d, b)
		}
		e.release(e.d, other)
		e.free(a.Key)
		e.refuse(e.d, a)
	}
}

func sharedReleaseIsTheOwners(e *env) {
	rs := e.share("k", 3)
	e.releaseNothing(e.d, e.reader("k"))
	for _, label := range []string{"", "{}", rs[1].Label + " ", rs[1].Label[:len(rs[1].Label)-1]} {
		stranger := rs[1]
		stranger.Label = label
		e.releaseNothing(e.d, stranger)
		e.renewNothing(e.d, stranger)
	}
	e.sharedBy(rs...)
	for len(rs) > 0 {
		gone := rs[0]
		rs = rs[1:]
		e.release(e.open(), gone)
		e.releaseNothing(e.d, gone)
		e.renewNothing(e.d, gone)
		for _, r := range []contend.Owner{gone, queued(gone)} {
			e.refuse(e.d, r)
		}
		if len(rs) > 0 {
			if info := e.sharedBy(rs...); info.Waiters != 0 {
				e.Errorf("one that was released waits: %+v", info)
			}
		}
	}
	e.free("k")
	nothing := e.reader("k")
	e.releaseNothing(e.d, nothing)
	e.refuse(e.d, nothing)
	e.free("k")
}

func settledSharerAgain(e *env) {
	a, b := e.reader("k"), e.reader("k")
	a.Settled = true
	e.grant(e.d, b)
	for range 3 {
		e.grant(e.d, a)
		e.sharedBy(a, b)
		e.release(e.d, a)
		e.releaseNothing(e.d, a)
	}
	e.sharedBy(b)
}

func eachSharersExpiry(e *env) {
	a, b, c := e.brief(e.reader("k")), e.reader("k"), e.reader("k")
	e.grant(e.d, b)
	e.grant(e.d, c)
	e.grant(e.d, e.brief(b))
	e.renewed(e.d, e.brief(c))
	for _, r := range []contend.Owner{b, c} {
		e.outlasts(r, "a Try or a Renew for a brief TTL by a reader with a long lease")
	}
	e.grant(e.d, a)
	e.renewed(e.d, b)
	e.grant(e.d, c)
	for _, l := range e.inspect("k").Holders {
		if sameOwner(a)(l) && l.Left > e.ttl {
			e.Errorf("others' Renew and Try left a lease of %v with %v", e.ttl, l.Left)
		}
	}
	a.TTL = 2 * e.long
	if res := e.try(e.d, a); !res.Granted || res.TTL <= e.long { // also if it had ended by now
		e.Errorf("asked for %v, granted %+v", a.TTL, res)
	}
	if left := e.left(a); !plausible(left, e.long) {
		e.Errorf("asked for %v, %v left", a.TTL, left)
	}
	b.TTL = 2 * e.long
	if res := e.renewed(e.d, b); res.TTL <= e.long || !plausible(e.left(b), e.long) || e.left(c) > e.long {
		e.Errorf("asked for %v, renewed for %v, %v left, and of another's %v", b.TTL, res.TTL, e.left(b), e.left(c))
	}
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

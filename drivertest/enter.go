// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var needEnters = Need{"Enters", func(d driver.Driver) bool { _, ok := d.(driver.Hander); return ok && d.Traits().Enters }}

var enterCases = []Case{
	{Name: "HandoverIsTold",
		Rule:  "A Hander tells, with the hint, the lease that a place got: its fence is above that of the refusal, and it began after that on the store's clock.",
		Needs: []Need{needEnters}, claims: true, run: handoverIsTold},
	{Name: "HandoverIsNotRepeated",
		Rule:  "A Hander tells nothing that was handed over before the Watch, nor to others.",
		Needs: []Need{needEnters}, claims: true, run: handoverIsNotRepeated},
	{Name: "EnteredLeaseIsClaimed",
		Rule:  "A Renew with Entered makes a lease that was handed over one like others: it lasts as long, and a Try by its owner returns it.",
		Needs: []Need{needEnters}, timely: true, claims: true, run: enteredIsClaimed},
	{Name: "EnteredLeaseIsReleased",
		Rule:  "A lease that was handed over can be released without a claim: the next has the key, and learns whether it was abandoned.",
		Needs: []Need{needEnters}, claims: true, run: enteredIsReleased},
	{Name: "EnteredLeaseConverts",
		Rule:  "A lease that was handed over can be converted by who knows its fence.",
		Needs: []Need{needEnters, needShared}, claims: true, run: enteredConverts},
	{Name: "EnteredLeaseAbandons",
		Rule:  "Who may have entered, and neither claimed the key nor released it, leaves it abandoned, and its Release after the end finds nothing.",
		Needs: []Need{needEnters, needMarks}, timely: true, run: enteredAbandons},
}

// hand has d's owner b handed the key by a, and returns what the hint says.
func (e *env) hand(d driver.Driver, a, b contend.Owner) driver.Handover {
	e.Helper()
	ch := e.hints(d, b)
	refused := e.join(d, b, 0)
	if refused.At <= 0 {
		e.Fatalf("the refusal says no time: %+v", refused)
	}
	e.release(e.d, a)
	e.hinted(ch)
	to, ok := d.(driver.Hander).Handed(b.Claim())
	if !ok || to.Fence <= refused.Fence || to.At < refused.At || to.TTL <= 0 {
		e.Fatalf("after the refusal %+v the hint says %+v, %v", refused, to, ok)
	}
	return to
}

func entering(r contend.Owner) contend.Owner {
	r.Enters, r.Entered = true, true
	return r
}

func handoverIsTold(e *env) {
	var newest uint64
	for _, key := range []string{"k", "a\x00}\xff"} {
		for _, end := range []driver.End{driver.Finished, driver.Unfinished} {
			d, a, b := e.open(), e.ask(key), entering(e.ask(key))
			newest = e.rises(newest, e.grant(e.d, a))
			to := e.hand(d, ending(a, end), b)
			newest = e.rises(newest, driver.Result{Granted: true, Fence: to.Fence, Fences: 1})
			if e.traits.Abandons && !e.abandonedRight(to.Abandoned, end == driver.Unfinished) {
				e.Errorf("after the end %d: %+v", end, to)
			}
			b = queued(b)
			if end == driver.Unfinished {
				b.Fences = 3
			}
			switch res := e.grant(d, b); {
			case b.Fences == 0 && (res.Fence != to.Fence || res.Handoff <= 0):
				e.Errorf("a Try returns %+v, want the lease %+v", res, to)
			case b.Fences > 0 && (res.Fences != b.Fences || res.Fence < to.Fence+uint64(b.Fences)):
				e.Errorf("a Try of %d fences returns %+v after %+v", b.Fences, res, to)
			default:
				newest = res.Fence
			}
			e.release(d, b)
		}
	}
}

func handoverIsNotRepeated(e *env) {
	d := e.open()
	a, b, c := e.ask("k"), entering(e.ask("k")), entering(e.ask("k"))
	e.grant(e.d, a)
	e.hand(d, a, b)
	e.hints(d, c)
	if to, ok := d.(driver.Hander).Handed(c.Claim()); ok {
		e.Errorf("told to one that was handed nothing: %+v", to)
	}
	e.grant(d, queued(b))
	e.join(d, c, 0)
	e.release(d, b)
	e.turn(d, c, e.long)
}

func enteredIsClaimed(e *env) {
	d := e.open()
	a, b := e.ask("k"), entering(e.ask("k"))
	e.grant(e.d, a)
	to := e.hand(d, a, b)
	e.renewed(d, b)
	time.Sleep(to.TTL + to.TTL/2)
	e.renewed(d, b)
	if info := e.heldBy(b); info.Fence != to.Fence {
		e.Errorf("the fence is %d, want %d", info.Fence, to.Fence)
	}
	if res := e.grant(d, b); res.Fence != to.Fence || res.Handoff != 0 {
		e.Errorf("a Try returns %+v, want fence %d, claimed before", res, to.Fence)
	}
	e.release(d, b)
}

func enteredIsReleased(e *env) {
	for _, claimed := range []bool{false, true} {
		for _, end := range []driver.End{driver.Finished, driver.Unfinished, driver.Unused} {
			d, a, b, c := e.open(), e.ask("k"), entering(e.ask("k")), e.ask("k")
			e.grant(e.d, a)
			to := e.hand(d, a, b)
			if claimed {
				e.renewed(d, b)
			}
			e.join(e.d, c, 0)
			e.release(d, ending(b, end))
			res := e.turn(e.d, c, e.long)
			if e.rises(to.Fence, res); e.traits.Abandons && !e.abandonedRight(res.Abandoned, end == driver.Unfinished) {
				e.Errorf("claimed: %v, after the end %d: %+v", claimed, end, res)
			}
			e.release(e.d, c)
		}
	}
}

func enteredConverts(e *env) {
	for _, knows := range []bool{true, false} {
		d, a, b, r := e.open(), e.ask("k"), entering(e.ask("k")), e.reader("k")
		e.grant(e.d, a)
		to := e.hand(d, a, b)
		if !knows {
			if e.try(d, converting(b)).Granted {
				e.Error("converted by one that does not know the fence")
			}
			e.release(d, b)
			continue
		}
		known := b
		known.Fence = to.Fence
		e.convert(d, known, to.Fence)
		e.beside(e.d, r)
		e.release(d, sharing(b, 0))
		e.release(e.d, r)
	}
}

func enteredAbandons(e *env) {
	d, a, b, c := e.open(), e.ask("k"), entering(e.ask("k")), e.ask("k")
	e.grant(e.d, a)
	to := e.hand(d, a, b)
	e.join(e.d, c, 0)
	time.Sleep(to.TTL)
	if res := e.turn(e.d, c, e.long); !e.abandonedRight(res.Abandoned, true) {
		e.Errorf("the next is not told: %+v", res)
	}
	e.releaseNothing(d, b)
	e.release(e.d, c)
	e.free("k")
}

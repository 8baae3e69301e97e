// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var convertCases = []Case{
	{Name: "ConvertShares",
		Rule:  "A holder that converts keeps its lease and its fence, and from then on Shared requests are granted beside it, and no Exclusive one is.",
		Needs: shared,
		play: `grant a; refuse r1; convert a elsewhere; shared a; waits; has a same; beside r1; beside r2 elsewhere; refuse b;
			shared a r1 r2; renew a; release a; shared r1 r2; release r1 r2 here; free`},
	{Name: "ConvertLetsReadersIn",
		Rule:  "A Convert grants the key to the readers at the front of the queue beside the holder and gives them hints, but to nobody behind the next writer.",
		Needs: sharedQueue,
		play: `grant a; await r1; await r2 elsewhere; await w elsewhere=r2; await r3; convert a; enter r2 r1; quiet r3;
			refuse w queued; shared a r1 r2; waits w r3; release a r1 r2 here; enter w`},
	{Name: "ConvertTwice", // a lost reply
		Rule:  "Convert asked again is the standing grant, with the same fence, and changes nothing, whoever was granted the key meanwhile.",
		Needs: shared,
		play: `grant a; convert a; convert a elsewhere; beside r1; convert a elsewhere; shared a r1; grant a same; release a exclusive;
			shared r1`},
	{Name: "ConvertOfNothing",
		Rule:  "Convert by an owner that holds nothing is refused, with or without Queue, on a free key and on a held one, and leaves nothing: the owner may still ask for the key.",
		Needs: shared,
		play: `refuse b converting; refuse b converting queued; free; refuse c converting; grant c; refuse d converting;
			refuse d converting queued; held c; waits; release c; grant r1 r2 spread; refuse e converting; refuse e converting queued;
			grant e sharing; release e sharing; shared r1 r2; waits`},
	{Name: "ConvertAfterTheEnd",
		Rule:  "Convert by an owner whose lease ended or was released is refused, and takes nothing from later holders.",
		Needs: shared,
		play: `grant a brief; expires; refuse a converting; free; grant b; refuse a converting; held b; release b;
			refuse b converting; free; grant r1 r2 spread; refuse b converting queued; shared r1 r2; waits`},
	{Name: "LateTryAfterConvert",
		Rule:  "A Try Exclusive by a holder that converted is refused, joins no queue and takes the key from nobody.",
		Needs: shared,
		play: `grant a; convert a; refuse a exclusive elsewhere; shared a; waits; refuse a exclusive queued elsewhere; shared a;
			waits; beside r1; refuse a exclusive elsewhere; shared a r1; waits; refuse a exclusive queued elsewhere; shared a r1;
			waits; convert a`},
	{Name: "LateRenewAfterConvert",
		Rule:  "A Renew as Exclusive after a Convert prolongs the lease and leaves it Shared, and a Release as Exclusive releases it.",
		Needs: shared,
		play: `grant a; convert a; renew a exclusive longer; has a longer; beside r1; shared a r1; release a exclusive; shared r1;
			release a gone`},
	{Name: "ConvertProlongs",
		Rule:  "Convert sets the expiry to now + TTL when that is later, never to an earlier moment.",
		Needs: shared,
		play:  "grant a; convert a brief; outlasts a; grant b@other; convert b@other longer; has b@other longer"},
	{Name: "WriterAfterConvert",
		Rule:  "A writer in the queue is granted the key once the holder that converted and all readers beside it are gone, with a larger fence than any of them.",
		Needs: sharedQueue,
		play: `grant a; convert a; beside r1; await w elsewhere; refuse w queued; release a exclusive; refuse w queued; release r1; enter w;
			held w; grant w rises`},
	{Name: "ConvertRacesWithJoin",
		Rule:  "A Shared request during a Convert is granted, or gets a hint to ask again, and nobody is ever granted the key Exclusive.",
		Needs: sharedQueue, run: convertRaces},
	{Name: "ConvertComparesTheFence",
		Rule:  "Convert with a fence is refused, and changes nothing, if the owner only has a smaller one, or was handed the key and did not claim it.",
		Needs: []Need{needShared, needNode},
		play: `grant n; release n; exact a at=n+1000; refuse a converting at=a+1 why=held; refuse r1; held a; convert a at=a-1;
			convert a at=a; refuse a converting at=a+1; grant r1; release a exclusive; release r1; handoff? grant c; handoff? join d;
			handoff? release c; handoff? refuse d converting at=c; handoff? refuse r2; handoff? turn d`},
}

// converting returns r as a Convert to Shared.
func converting(r contend.Owner) contend.Owner {
	r.Mode, r.Convert = driver.Shared, true
	return r
}

// convert converts, and must be granted the fence held.
func (e *env) convert(d driver.Driver, r contend.Owner, fence uint64) driver.Result {
	e.Helper()
	res := e.grant(d, converting(r))
	if res.Fence != fence {
		e.Fatalf("the fence was %d, is %d after a Convert", fence, res.Fence)
	}
	return res
}

// beside is granted the key beside a holder that converted: at once, but where the store has
// several nodes, some of which may hear of the Convert a moment later. Then it is refused by
// nobody's lease, and asks again.
func (e *env) beside(d driver.Driver, r contend.Owner) (res driver.Result) {
	e.Helper()
	if e.store.Ended == nil {
		return e.grant(d, r)
	}
	e.eventually(e.ttl, "granted beside a holder that converted", func() bool {
		res = e.try(d, r)
		if !res.Granted && (res.Left > 0 || res.RetryIn <= 0) {
			e.Fatalf("refused beside a holder that converted: %+v", res)
		}
		return res.Granted
	})
	return res
}

func convertRaces(e *env) {
	other, third := e.open(), e.open()
	for range raceRounds {
		a, r, w := e.ask("k"), &listener{d: other, r: e.reader("k")}, e.ask("k")
		fence := e.grant(e.d, a).Fence
		r.ch = e.watch(other, r.r)
		var converted, asked, wrote driver.Result
		var errs [3]error
		atOnce(
			func() { converted, errs[0] = contend.Try(e.ctx, e.d, converting(a)) },
			func() { asked, errs[1] = contend.Try(e.ctx, other, queued(r.r)) },
			func() { wrote, errs[2] = contend.Try(e.ctx, third, w) })
		switch {
		case errs != [3]error{}:
			e.Fatalf("Try: %v", errs)
		case !converted.Granted || converted.Fence != fence:
			e.Fatalf("Convert with the fence %d: %+v", fence, converted)
		case wrote.Granted:
			e.Fatalf("granted Exclusive beside one that converts: %+v", wrote)
		case !asked.Granted:
			e.see(r, asked)
			e.enter(r)
		}
		e.sharedBy(a, r.r)
		e.releaseAll(a, r.r)
		e.free("k")
	}
}

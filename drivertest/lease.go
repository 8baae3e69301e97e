// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var leaseCases = []Case{
	{Name: "TraitsAreConstant",
		Rule: "Traits always returns the same value, and names the engine and the smallest TTL.",
		run:  traitsAreConstant},
	{Name: "TryGrantsAFreeKey",
		Rule: "A key without a holder is granted, and the store shows the holder to every client.",
		play: "free; grant a clean rises; held a; has a left same"},
	{Name: "OneHolder",
		Rule: "While one owner holds a key every other is refused, and the answer names the holder and how long its lease lasts.",
		play: `grant a; refuse b why=held by=a left ahead=0; refuse b elsewhere why=held by=a left ahead=0; held a;
			grant b@other elsewhere`},
	{Name: "OneHolderOfManyAtOnce",
		Rule: "Of many simultaneous requests for a free key exactly one is granted.",
		play: `5 times; ask a1..a16 spread=9 & ask a17..a32 spread=9; won a1..a32; release a1..a32 here won; free`},
	{Name: "TryAgainIsTheSameGrant", // failure case 13
		Rule: "Asking again with the same owner returns the standing grant with its fence, so that a lost reply does no harm.",
		play: "grant a; grant a elsewhere same; grant a elsewhere queued same; held a; waits; release a; free"},
	{Name: "TryNeverShortens",
		Rule: "Try by the holder never sets the expiry to an earlier moment.",
		play: "grant a; grant a brief; outlasts a"},
	{Name: "TryProlongs",
		Rule: "Try by the holder sets the expiry to now + TTL when that is later.",
		play: "grant a brief; grant a lasting; outlasts a"},
	{Name: "RefusalLeavesNoTrace",
		Rule: "A refused request without Queue leaves nothing in the store.",
		play: "grant a; refuse b; refuse b; refuse b; held a; waits; release a; free; grant c"},
	{Name: "LeaseEnds", // failure case 14
		Rule: "A lease without renewals ends after the TTL of its Try: not before, and not much later.",
		play: "grant a brief; inherit b in=a after=a; renew a gone; release a gone; held b"},
	{Name: "TTLMustBePositive", // failure case 4
		Rule: "A TTL of 0 or less is an error, and nothing is held.",
		play: each([]string{"0", "-1", "-3600000000000"}, "cannot a fresh ttl=#; free")},
	{Name: "MinTTL", // failure case 4
		Rule: "A lease of the smallest TTL that Traits names is granted, and ends.",
		play: "grant a ttl=min; until holds=0 in=a"},
	{Name: "SharedIsRefused", Needs: []Need{needNoShare},
		Rule: "An engine without shared locks answers Mode Shared with ErrUnsupported, and never with an exclusive grant.",
		play: "cannot r1 unsupported; free"},
	{Name: "OwnerIsNotTheConnection",
		Rule: "A lease belongs to its owner, not to the client that asked: another client may renew and release it.",
		play: "grant a; renew a elsewhere; release a elsewhere; free"},
	{Name: "EndedContext",
		Rule: "With a context that has ended every method returns soon, with an error.",
		run:  endedContext},
	{Name: "CancelledTryIsCleanedUp", // failure case 11
		Rule: "After a Try whose context ended meanwhile, a Release leaves nothing of it, whether or not the request was carried out.",
		run:  cancelledTry},
	{Name: "ReleaseFreesTheKey",
		Rule: "After Release the key is free at once, and its next holder learns that it was not abandoned.",
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
		Rule: "So is a Try that arrives when the TTL that its owner asked for is over: it may be under way for ten seconds.",
		run:  tryLongAfterRelease},
	{Name: "RenewProlongs", timely: true,
		Rule: "Renew sets the expiry to now + TTL, so that a renewed lease outlasts its TTL.",
		play: "grant a brief; live a brief via=lease; held a; renew a lasting; outlasts a"},
	{Name: "RenewNeverShortens",
		Rule: "Renew never sets the expiry to an earlier moment.",
		play: "grant a; renew a brief; outlasts a"},
	{Name: "RenewNeverGrants",
		Rule: "Renew of a key without a holder is ErrNotHeld, and grants nothing.",
		play: "renew a gone; free; renew b queued gone; free; grant c; release c; renew c gone; free"},
	{Name: "RenewNeverRevives", // failure case 2
		Rule: "A lease that ended never comes back: Renew is ErrNotHeld after its expiry, and does not affect a later grant.",
		play: `grant a brief; expires; renew a brief gone; free; inherit b; renew a longer gone; held b; has b usual; release b;
			renew a longer gone; free`},
	{Name: "RenewReportsEach",
		Rule: "Renew reports each request separately: one of a key not held does not affect the others.",
		run:  renewReportsEach},
	{Name: "RenewNamesItsLeases", timely: true, // an etcd lease or a ZooKeeper session for all of a client
		Rule: "A Renew prolongs the leases that it names, and no other lease or place of the same client.",
		play: `grant a@renewed brief; grant b brief; inherit c renewing=a@renewed; held a@renewed; renew b gone; queue? join d brief;
			queue? join e; queue? release c; queue? inherit e queued in=3ttl renewing=a@renewed; queue? held a@renewed`},
	{Name: "RenewOfNothing",
		Rule: "Renew of no requests returns, and reports nothing.",
		run:  func(e *env) { e.renew(e.d) }},
	{Name: "RenewOfMany",
		Rule: "One Renew takes 10,000 leases, and reports each exactly once.",
		run:  renewOfMany},
	{Name: "RenewSaysThatSomebodyWaits", Needs: []Need{needQueue},
		Rule: "The answer to a renewal says whether an owner waits for this lease.",
		play: "grant a; renew a unwanted; join b; renew a wanted; release b; renew a unwanted"},
}

func traitsAreConstant(e *env) {
	if t := e.open().Traits(); t != e.traits {
		e.Errorf("Traits is %+v, and %+v of another client", e.traits, t)
	}
	if e.traits.Engine == "" || e.traits.MinTTL <= 0 {
		e.Errorf("Traits lacks Engine or MinTTL: %+v", e.traits)
	}
}

func endedContext(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	r := e.ask("k")
	start := time.Now()
	fails := func(what string, err error) {
		e.Helper()
		if err == nil {
			e.Errorf("%s with an ended context: no error", what)
		} else if errors.Is(err, driver.ErrNotHeld) {
			e.Errorf("%s with an ended context claims to know: %v", what, err)
		}
	}
	_, err := contend.Try(ctx, e.d, r)
	fails("Try", err)
	contend.Renew(ctx, e.d, []contend.Owner{r}, func(_ int, a driver.Renewal) { fails("Renew", a.Err) })
	fails("Release", contend.Release(ctx, e.d, r))
	_, err = contend.Watch(ctx, e.d, r)
	fails("Watch", err)
	_, err = e.d.Inspect(ctx, "k")
	fails("Inspect", err)
	for _, err = range e.d.List(ctx, "") {
		fails("List", err)
	}
	if took := time.Since(start); took > e.slack+e.stalled() {
		e.Errorf("the calls took %v", took)
	}
}

func cancelledTry(e *env) {
	for i := range 50 {
		r := e.ask("k")
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(i)*20*time.Microsecond)
		_, err := contend.Try(ctx, e.d, r)
		cancel()
		if err := contend.Release(e.ctx, e.d, r); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			e.Fatalf("Release: %v", err)
		}
		e.free("k")
		e.refuse(e.d, r)
		if err == nil {
			continue
		}
		if c := e.d.Classify(err); c != driver.ClassUnknown && c != driver.ClassUnreachable {
			e.Errorf("an ended context is of class %d: %v", c, err)
		}
	}
}

// otherLabels are labels that an owner does not have.
var otherLabels = []string{"label=", "label={}", "label=long", "label=short"}

func tryLongAfterRelease(e *env) {
	a, b := e.ask("k"), e.ask("k")
	a.TTL = min(e.ttl, driver.MaxTransit/2)
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
	if after := time.Since(released); res.Why != driver.WhyReleased && after < driver.MaxTransit {
		e.Errorf("an owner that was released %v ago, with a TTL of %v: %+v, want Released", after, a.TTL, res)
	}
}

func renewReportsEach(e *env) {
	const n = 40
	var rs []contend.Owner
	for i := range n {
		r := e.ask("k" + strconv.Itoa(i))
		r.TTL += time.Duration(i%3) * time.Minute
		if i%4 != 1 {
			e.grant(e.d, r)
		}
		if i%4 == 3 { // another's
			r = e.ask(r.Key)
		}
		rs = append(rs, r)
	}
	for i, a := range e.renew(e.d, rs...) {
		if held := i%4 == 0 || i%4 == 2; held != (a.Err == nil) || !held && !errors.Is(a.Err, driver.ErrNotHeld) {
			e.Errorf("request %d of %d (held: %v): %v", i, n, held, a.Err)
		}
		if a.Err == nil && a.TTL <= 0 {
			e.Errorf("request %d was renewed for %v", i, a.TTL)
		}
	}
}

// renewOfMany acquires fewer leases from a store that is slow to grant them.
func renewOfMany(e *env) {
	const workers = 16
	most := 10_000
	if e.fake {
		most = manyFake
	}
	var mu sync.Mutex
	var rs []contend.Owner
	var wg sync.WaitGroup
	next := make(chan int, most)
	for i := range most {
		next <- i
	}
	close(next)
	start := time.Now()
	for range workers {
		wg.Go(func() {
			for i := range next {
				if time.Since(start) > 5*time.Second {
					return
				}
				r := e.ask("k" + strconv.Itoa(i))
				if res, err := contend.Try(e.ctx, e.d, r); err != nil || !res.Granted {
					e.Errorf("Try: %+v, %v", res, err)
					return
				}
				mu.Lock()
				rs = append(rs, r)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i, a := range e.renew(e.d, rs...) {
		if a.Err != nil || a.TTL <= 0 {
			e.Fatalf("renewal %d of %d: %+v", i, len(rs), a)
		}
	}
	e.Logf("one Renew of %d leases", len(rs))
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var tryCases = []Case{
	{Name: "TraitsAreConstant",
		Rule: "Traits always returns the same value, and names the engine and the smallest TTL.",
		run:  traitsAreConstant},
	{Name: "TryGrantsAFreeKey",
		Rule: "A key that nobody holds is granted, and the store shows the holder to every client.",
		play: "free; grant a clean rises; held a; has a left same"},
	{Name: "OneHolder",
		Rule: "While one owner holds a key every other is refused, and the answer names the holder and how long its lease lasts.",
		play: `grant a; refuse b why=held by=a left ahead=0; refuse b elsewhere why=held by=a left ahead=0; held a;
			grant b@other elsewhere`},
	{Name: "OneHolderOfManyAtOnce",
		Rule: "Of many simultaneous requests for a free key exactly one is granted.",
		run:  oneHolderOfMany},
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
		Rule: "A lease that nobody renews ends after the TTL of its Try: not before, and not much later.",
		run:  leaseEnds},
	{Name: "TTLMustBePositive", // failure case 4
		Rule: "A TTL of 0 or less is an error, and nothing is held.",
		run:  ttlMustBePositive},
	{Name: "MinTTL", // failure case 4
		Rule: "A lease of the smallest TTL that Traits names is granted, and ends.",
		run:  minTTL},
	{Name: "SharedIsRefused",
		Rule:  "An engine without shared locks answers Mode Shared with ErrUnsupported, and never with an exclusive grant.",
		Needs: []Need{needNoShare},
		run:   sharedIsRefused},
	{Name: "OwnerIsNotTheConnection",
		Rule: "A lease belongs to its owner, not to the client that asked: another client may renew and release it.",
		play: "grant a; renew a elsewhere; release a elsewhere; free"},
	{Name: "EndedContext",
		Rule: "With a context that has ended every method returns soon, with an error.",
		run:  endedContext},
	{Name: "CancelledTryIsCleanedUp", // failure case 11
		Rule: "After a Try whose context ended meanwhile, a Release leaves nothing of it, whether or not the request was carried out.",
		run:  cancelledTry},
}

func traitsAreConstant(e *env) {
	if t := e.open().Traits(); t != e.traits {
		e.Errorf("Traits is %+v, and %+v of another client", e.traits, t)
	}
	if e.traits.Engine == "" || e.traits.MinTTL <= 0 {
		e.Errorf("Traits lacks Engine or MinTTL: %+v", e.traits)
	}
}

func oneHolderOfMany(e *env) {
	const clients, rounds = 8, 5
	ds := make([]driver.Driver, clients)
	for i := range ds {
		ds[i] = e.open()
	}
	for range rounds {
		var mu sync.Mutex
		var won []contend.Owner
		var wg sync.WaitGroup
		for i := range 4 * clients {
			wg.Go(func() {
				r := e.ask("k")
				res, err := contend.Try(e.ctx, ds[i%clients], r)
				if err != nil {
					e.Errorf("Try: %v", err)
				}
				if res.Granted {
					mu.Lock()
					won = append(won, r)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			e.Fatalf("%d owners were granted at once", len(won))
		}
		e.release(e.d, won[0])
	}
}

func leaseEnds(e *env) {
	a, b := e.brief(e.ask("k")), e.ask("k")
	start := time.Now()
	first := e.grant(e.d, a)
	var res driver.Result
	e.eventually(first.TTL, "the key of an owner that is gone is granted to another", func() bool {
		res = e.try(e.d, b)
		return res.Granted
	})
	if took := time.Since(start); took < sure(first.TTL) {
		e.Errorf("granted to another after %v, within the TTL of %v", took, first.TTL)
	}
	e.renewNothing(e.d, a)
	e.releaseNothing(e.d, a)
	e.heldBy(b)
}

func ttlMustBePositive(e *env) {
	for _, ttl := range []time.Duration{0, -1, -time.Hour} {
		r := e.ask("k")
		r.TTL = ttl
		if res, err := contend.Try(e.ctx, e.d, r); err == nil {
			e.Errorf("a TTL of %v: %+v, want an error", ttl, res)
		}
		e.free("k")
	}
}

func minTTL(e *env) {
	r := e.ask("k")
	r.TTL = e.traits.MinTTL
	res := e.grant(e.d, r)
	e.eventually(res.TTL, "a lease of the smallest TTL ends", func() bool { return !e.inspect("k").Held })
}

func sharedIsRefused(e *env) {
	r := e.ask("k")
	r.Mode = driver.Shared
	if res, err := contend.Try(e.ctx, e.d, r); !errors.Is(err, driver.ErrUnsupported) {
		e.Errorf("Mode Shared: %+v, %v, want ErrUnsupported", res, err)
	}
	e.free("k")
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
	if took := time.Since(start); took > e.slack+e.lost() {
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

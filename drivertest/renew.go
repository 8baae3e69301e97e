// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var renewCases = []Case{
	{Name: "RenewProlongs",
		Rule:   "Renew sets the expiry to now + TTL, so that a renewed lease outlasts its TTL.",
		timely: true, run: renewProlongs},
	{Name: "RenewNeverShortens",
		Rule: "Renew never sets the expiry to an earlier moment.",
		play: "grant a; renew a brief; outlasts a"},
	{Name: "RenewNeverGrants",
		Rule: "Renew of a key that nobody holds is ErrNotHeld, and grants nothing.",
		play: "renew a gone; free; renew b queued gone; free; grant c; release c; renew c gone; free"},
	{Name: "RenewNeverRevives", // failure case 2
		Rule: "A lease that ended never comes back: Renew is ErrNotHeld after its expiry, and does not affect a later grant.",
		play: `grant a brief; expires; renew a brief gone; free; inherit b; renew a longer gone; held b; has b usual; release b;
			renew a longer gone; free`},
	{Name: "RenewReportsEach",
		Rule: "Renew reports each request separately: one that is not held does not affect the others.",
		run:  renewReportsEach},
	{Name: "RenewNamesItsLeases", // an etcd lease or a ZooKeeper session for all of a client
		Rule:   "A Renew prolongs the leases that it names, and no other lease or place of the same client.",
		timely: true, run: renewNamesItsLeases},
	{Name: "RenewOfNothing",
		Rule: "Renew of no requests returns, and reports nothing.",
		run:  func(e *env) { e.renew(e.d) }},
	{Name: "RenewOfMany",
		Rule: "One Renew takes 10,000 leases, and reports each exactly once.",
		run:  renewOfMany},
	{Name: "RenewSaysThatSomebodyWaits",
		Rule:  "The answer to a renewal says whether an owner waits for this lease.",
		Needs: []Need{needQueue},
		play:  "grant a; renew a unwanted; join b; renew a wanted; release b; renew a unwanted"},
}

func renewProlongs(e *env) {
	a := e.brief(e.ask("k"))
	e.grant(e.d, a)
	for start := time.Now(); time.Since(start) < 3*e.ttl; time.Sleep(e.ttl / 3) {
		if res := e.renewed(e.d, a); res.TTL <= 0 {
			e.Fatalf("renewed for %v", res.TTL)
		}
	}
	e.heldBy(a)
	a.TTL = e.long
	if res := e.renewed(e.d, a); res.TTL <= e.ttl {
		e.Errorf("asked for %v, renewed for %v", e.long, res.TTL)
	}
	e.outlasts(a, "a renewal for a long TTL")
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

func renewNamesItsLeases(e *env) {
	a, b := e.brief(e.ask("renewed")), e.brief(e.ask("forgotten"))
	next := e.ask(b.Key)
	e.grant(e.d, a)
	e.grant(e.d, b)
	e.eventually(e.ttl, "the lease that nobody renews ends", func() bool {
		e.renewed(e.d, a)
		return e.try(e.d, next).Granted
	})
	e.heldBy(a)
	e.renewNothing(e.d, b)
	if e.traits.Queue == driver.QueueNone {
		return
	}
	gone, waits := e.brief(e.ask(b.Key)), e.ask(b.Key)
	e.join(e.d, gone, 0)
	e.join(e.d, waits, 1)
	e.release(e.d, next)
	e.eventually(3*e.ttl, "the place that nobody renews is skipped", func() bool {
		e.renewed(e.d, a)
		return e.try(e.d, queued(waits)).Granted
	})
	e.heldBy(a)
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

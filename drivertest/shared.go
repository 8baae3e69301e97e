// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var shared = []Need{needShared}

var sharedCases = []Case{
	{Name: "SharersHoldTogether",
		Rule:  "Any number of owners that ask Shared hold a key together, and one that asks Exclusive is refused until the last of them is gone.",
		Needs: shared,
		play: `grant r1..r5 spread; shared r1..r5; refuse a why=held left by=r1,r2,r3,r4,r5; release r3 elsewhere;
			shared r1 r2 r4 r5; refuse b why=held left by=r1,r2,r4,r5; release r1 elsewhere; shared r2 r4 r5;
			refuse c why=held left by=r2,r4,r5; release r5 elsewhere; shared r2 r4; refuse d why=held left by=r2,r4;
			release r4 elsewhere; shared r2; refuse e why=held left by=r2; release r2 elsewhere; free; grant f`},
	{Name: "WriterKeepsSharersOut",
		Rule:  "While a key is held Exclusive, a Shared request is refused, and the answer names the holder and how long its lease lasts.",
		Needs: shared,
		play:  "grant a; refuse r1 why=held by=a left; refuse r1 elsewhere why=held by=a left; held a; release a; grant r1; shared r1"},
	{Name: "OneWriterOrSharersAtOnce",
		Rule:  "Of many simultaneous requests for a free key, either one Exclusive request is granted and no other, or some Shared ones and no other.",
		Needs: shared, run: oneWriterOrSharers},
	{Name: "SharedTryAgainIsTheSameGrant",
		Rule:  "Asking Shared again with the same owner returns the standing grant with its fence, and adds no second hold.",
		Needs: shared,
		play:  "grant r1 r2; grant r1 elsewhere same; grant r1 elsewhere queued same; shared r1 r2; waits; release r1; shared r2"},
	{Name: "SharedTryEntersNoQueue",
		Rule:  "A sharing holder that asks again gets its standing grant, though a writer waits.",
		Needs: []Need{needShared, needQueue},
		play:  "grant r1; join w elsewhere; grant r1 elsewhere same; grant r1 elsewhere queued same; shared r1; waits w"},
	{Name: "SharedRefusalLeavesNoTrace",
		Rule:  "A refused Shared request without Queue leaves nothing in the store.",
		Needs: shared,
		play:  "grant a; refuse r1; refuse r1; refuse r1; held a; waits; release a; free"},
	{Name: "CopiesOfASharedRequestAtOnce",
		Rule:  "Copies of one Shared request that arrive at once, on several connections, are one hold.",
		Needs: shared, run: sharedCopiesAtOnce},
}

// sharing returns r in Shared mode: limit holders in all, 0 for any number.
func sharing(r contend.Owner, limit int) contend.Owner {
	r.Mode, r.Limit = driver.Shared, limit
	return r
}

// reader returns the request of a fresh owner that shares the key with any number.
func (e *env) reader(key string) contend.Owner { return sharing(e.ask(key), 0) }

func sameOwner(r contend.Owner) func(driver.Lease) bool {
	return func(l driver.Lease) bool { return l.Holder.Owner == r.Owner && l.Holder.Label == r.Label }
}

// sharedBy fails unless exactly these hold their key, in any order, all Shared.
func (e *env) sharedBy(rs ...contend.Owner) driver.Info {
	e.Helper()
	info := e.inspect(rs[0].Key)
	if !info.Held || info.Holds != len(rs) || len(info.Holders) != len(rs) {
		e.Fatalf("%q has %d holders, %d in the list, want %d: %+v", info.Key, info.Holds, len(info.Holders), len(rs), info)
	}
	for _, r := range rs {
		if !slices.ContainsFunc(info.Holders, sameOwner(r)) {
			e.Fatalf("%s does not hold %q: %+v", r.Owner, r.Key, info.Holders)
		}
	}
	for _, l := range info.Holders {
		if l.Holder.Mode != driver.Shared {
			e.Fatalf("a holder beside others is not Shared: %+v", l)
		}
	}
	return info
}

// left returns what is left of a lease according to Inspect.
func (e *env) left(r contend.Owner) time.Duration {
	e.Helper()
	holders := e.inspect(r.Key).Holders
	i := slices.IndexFunc(holders, sameOwner(r))
	if i < 0 {
		e.Fatalf("%s does not hold %q: %+v", r.Owner, r.Key, holders)
	}
	return holders[i].Left
}

func oneWriterOrSharers(e *env) {
	const clients, rounds = 4, 5
	ds := make([]driver.Driver, clients)
	for i := range ds {
		ds[i] = e.open()
	}
	for range rounds {
		var mu sync.Mutex
		won := make(map[driver.Mode][]contend.Owner)
		var fs []func()
		for i := range 4 * clients {
			r := e.ask("k")
			if i%2 == 0 {
				r = e.reader("k")
			}
			fs = append(fs, func() {
				res, err := contend.Try(e.ctx, ds[i/4], r)
				if err != nil {
					e.Errorf("Try: %v", err)
				}
				if res.Granted {
					mu.Lock()
					defer mu.Unlock()
					won[r.Mode] = append(won[r.Mode], r)
				}
			})
		}
		atOnce(fs...)
		writers, readers := won[driver.Exclusive], won[driver.Shared]
		if len(writers) > 1 || len(writers) == 1 && len(readers) > 0 || len(writers)+len(readers) == 0 {
			e.Fatalf("at once %d were granted Exclusive and %d Shared", len(writers), len(readers))
		}
		for _, r := range slices.Concat(writers, readers) {
			e.release(e.d, r)
		}
		e.free("k")
	}
}

func sharedCopiesAtOnce(e *env) {
	ds := []driver.Driver{e.d, e.open(), e.open()}
	b := e.reader("k")
	e.grant(e.d, b)
	for range raceRounds / 5 {
		r := e.reader("k")
		e.copiesAtOnce(ds, r)
		e.sharedBy(b, r)
		e.release(e.d, r)
		e.sharedBy(b)
	}
}

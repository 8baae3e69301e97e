// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var (
	slots      = []Need{needShared, needSlots}
	slotsQueue = []Need{needShared, needSlots, needQueue}
)

var slotCases = []Case{
	{Name: "NoLimitWithoutSlots",
		Rule:  "An engine that shares keys without counting answers a Limit with ErrUnsupported, and never with a grant.",
		Needs: []Need{needShared, needNoSlots}, run: limitIsRefused},
	{Name: "LimitIsKept",
		Rule:  "Limit owners hold a key together, and the next is refused until one of them is gone.",
		Needs: slots,
		play: each(rounds(4), "grant s#/4 spread slot=#") + `
			shared s0..s3/4; refuse s4/4 elsewhere why=held left by=s0/4,s1/4,s2/4,s3/4; refuse a; release s0/4 here; grant s4/4 here;
			shared s1..s4/4; refuse s5/4 elsewhere why=held left by=s1/4,s2/4,s3/4,s4/4; refuse b; release s1/4 here; grant s5/4 here;
			shared s2..s5/4; refuse s6/4 elsewhere why=held left by=s2/4,s3/4,s4/4,s5/4; refuse c; release s2/4 here; grant s6/4 here;
			shared s3..s6/4; refuse s7/4 elsewhere why=held left by=s3/4,s4/4,s5/4,s6/4; refuse d; release s3/4 here; grant s7/4 here;
			release s4..s7/4 here; free`},
	{Name: "LimitIsKeptAtOnce",
		Rule:  "Of many simultaneous requests with a Limit exactly Limit are granted, with different slots.",
		Needs: slots, run: limitAtOnce},
	{Name: "SmallestLimitCounts",
		Rule:  "If the holders of a key and the request have different limits, nobody is granted the key beyond the smallest of them; a reader without a Limit counts as one holder.",
		Needs: slots,
		play: `grant s1/3; refuse s2/1; grant s3/5; refuse s4/2; grant r1; refuse s5/3 s6/5 r2; release s1/3; grant s7/5;
			refuse s8/3; grant r3 s9/5; refuse s10/5 r4`},
	{Name: "SlotIsTheSmallestThatIsFree",
		Rule:  "A holder's slot is the smallest number from 0 on that no other holder has, and so below its Limit.",
		Needs: slots,
		play: each(rounds(4), "grant s#/4 spread slot=#") + `release s2/4 s1/4 here; grant s4/4 elsewhere slot=1;
			grant s5/4 elsewhere slot=2; release s0/4 s4..s5/4 s3/4 here; grant s6/4 slot=0; grant s7/8 slot=1`},
	{Name: "SlotIsKept",
		Rule:  "A holder keeps its slot while it holds the key: asking again and renewing do not change it, even after smaller ones became free.",
		Needs: slots,
		play: each(rounds(3), "grant s#/3 spread slot=#") + `release s0/3 s1/3 here; grant s2/3 elsewhere slot=2; renew s2/3 here;
			grant s2/3 elsewhere queued slot=2; renew s2/3 here; shared s2/3; has s2/3 slot=2; grant s3/3 slot=0;
			grant s2/3 here slot=2`},
	{Name: "SlotOfADeadHolderComesBack",
		Rule:  "The slot of a vanished holder is free once its lease has ended.",
		Needs: slots, run: slotComesBack},
	{Name: "ReaderHasNoSlot",
		Rule:  "A reader without a Limit has slot 0 and takes it from nobody; Inspect shows each holder's Limit and Slot.",
		Needs: slots,
		play: `grant r1 slot=0; grant s1/5 slot=0; grant r2 slot=0; grant s2/6 slot=1; queue? join s3/4; shared r1 s1/5 r2 s2/6;
			has r1 r2 limit=0 slot=0; has s1/5 limit=5 slot=0; has s2/6 limit=6 slot=1; queue? waits s3/4`},
	{Name: "LimitedQueueIsInOrder",
		Rule:  "The queue for a key with a Limit is served in order: each release makes room for one, with its slot.",
		Needs: slotsQueue, claims: true,
		play: each(rounds(3), "grant s#/3 spread slot=#") + `await t1..t6/3 elsewhere;
			release s1/3 here; refuse t6/3 queued; enter t1/3; grant t1/3 here slot=1; refuse t2..t6/3 queued;
			release s0/3 here; refuse t6/3 queued; enter t2/3; grant t2/3 here slot=0; refuse t3..t6/3 queued;
			release s2/3 here; refuse t6/3 queued; enter t3/3; grant t3/3 here slot=2; refuse t4..t6/3 queued;
			release t2/3 here; refuse t6/3 queued; enter t4/3; grant t4/3 here slot=0; refuse t5..t6/3 queued;
			release t3/3 here; refuse t6/3 queued; enter t5/3; grant t5/3 here slot=2; refuse t6/3 queued;
			release t1/3 here; enter t6/3; grant t6/3 here slot=1; release t4..t6/3 here; free`},
	{Name: "LargerLimitLetsSeveralIn",
		Rule:  "When the holder with the smallest Limit releases, as many from the front of the queue are granted the key as the limits then allow, and get hints.",
		Needs: slotsQueue,
		play: `grant s1/2 s2/5; await t1..t5/5; quiet t1..t5/5; release s1/2; enter t4..t1/5; shared s2/5 t1..t4/5;
			refuse t5/5 queued; release s2/5; enter t5/5`},
	{Name: "DeadHoldersLetAsManyIn",
		Rule:  "When the leases of all holders of a key with a Limit expire, as many from the front of the queue are granted the key once the first of them asks, and get hints.",
		Needs: slotsQueue, timely: true,
		play: `grant s1..s5/5 brief; await t1..t6/5 spread; turn t1/5 in=ttl; enter t2..t5/5; refuse t6/5 queued;
			shared t1..t5/5`},
	{Name: "FirstInTheQueueKnowsWhenThereIsRoom",
		Rule:  "The first in the queue for a key with a Limit learns when the first of the leases ends that makes room.",
		Needs: slotsQueue, timely: true,
		play: "grant s1/2; grant s2/2 brief; join s3/2 elsewhere wakes=ttl left=ttl; turn s3/2 here in=ttl; shared s1/2 s3/2"},
	{Name: "LimitOfOne",
		Rule:  "A Limit of 1 is one holder at a time.",
		Needs: slots,
		play:  "grant s1/1 slot=0; refuse s2/1 s3/9 r1 a; release s1/1; grant s2/1 slot=0"},
	{Name: "ConvertTakesASlot",
		Rule:  "A holder that converts with a Limit has slot 0, and others are granted the key until the Limit is reached.",
		Needs: slots,
		play: `grant a; convert a limit=2 slot=0; convert a limit=2 slot=0; grant s1/2 slot=1; refuse s2/2; shared a s1/2;
			has a limit=2; grant a slot=0`},
}

// slotted returns the request of a fresh owner that shares the key with at most limit-1
// others.
func (e *env) slotted(key string, limit int) contend.Owner { return sharing(e.ask(key), limit) }

// grantSlot must be granted the slot.
func (e *env) grantSlot(d driver.Driver, r contend.Owner, slot int) {
	e.Helper()
	if res := e.grant(d, r); res.Slot != slot {
		e.Fatalf("granted slot %d of %d, want %d", res.Slot, r.Limit, slot)
	}
}

func limitIsRefused(e *env) {
	r := e.slotted("k", 2)
	if res, err := contend.Try(e.ctx, e.d, r); !isUnsupported(err) {
		e.Errorf("a Limit: %+v, %v, want ErrUnsupported", res, err)
	}
	e.free("k")
	a := e.ask("k")
	e.grant(e.d, a)
	r = converting(a)
	r.Limit = 2
	if res, err := contend.Try(e.ctx, e.d, r); !isUnsupported(err) {
		e.Errorf("a Convert with a Limit: %+v, %v, want ErrUnsupported", res, err)
	}
	e.heldBy(a)
	e.refuse(e.d, e.reader("k"))
}

func limitAtOnce(e *env) {
	const clients, n, rounds = 4, 5, 5
	ds := make([]driver.Driver, clients)
	for i := range ds {
		ds[i] = e.open()
	}
	for range rounds {
		var mu sync.Mutex
		won := make(map[int]contend.Owner)
		granted := 0
		var fs []func()
		for i := range 4 * clients {
			r := e.slotted("k", n)
			fs = append(fs, func() {
				res, err := contend.Try(e.ctx, ds[i%clients], r)
				if err != nil {
					e.Errorf("Try: %v", err)
				}
				if res.Granted {
					mu.Lock()
					defer mu.Unlock()
					granted++
					won[res.Slot] = r
				}
			})
		}
		atOnce(fs...)
		if granted != n || len(won) != n {
			e.Fatalf("%d of at most %d were granted at once, with %d slots", granted, n, len(won))
		}
		for slot, r := range won {
			if slot < 0 || slot >= n {
				e.Errorf("slot %d of %d", slot, n)
			}
			e.release(e.d, r)
		}
		e.free("k")
	}
}

func slotComesBack(e *env) {
	gone, b := e.brief(e.slotted("k", 2)), e.slotted("k", 2)
	e.grantSlot(e.d, gone, 0)
	if res := e.grant(e.d, b); res.Slot == 0 { // the other's lease has ended by now
		e.release(e.d, b)
	}
	next := e.slotted("k", 2)
	var res driver.Result
	e.eventually(e.ttl, "the hold of one that is gone is another's", func() bool {
		res = e.try(e.d, next)
		return res.Granted
	})
	if res.Slot != 0 {
		e.Errorf("granted slot %d, want that of the one that is gone, 0", res.Slot)
	}
	e.renewNothing(e.d, gone)
	e.releaseNothing(e.d, gone)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"slices"
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
		Needs: slots, run: limitIsKept},
	{Name: "LimitIsKeptAtOnce",
		Rule:  "Of many simultaneous requests with a Limit exactly Limit are granted, with different slots.",
		Needs: slots, run: limitAtOnce},
	{Name: "SmallestLimitCounts",
		Rule:  "If the holders of a key and the request have different limits, nobody is granted the key beyond the smallest of them; a reader without a Limit counts as one holder.",
		Needs: slots, run: smallestLimit},
	{Name: "SlotIsTheSmallestThatIsFree",
		Rule:  "A holder's slot is the smallest number from 0 on that no other holder has, and so below its Limit.",
		Needs: slots, run: smallestSlot},
	{Name: "SlotIsKept",
		Rule:  "A holder keeps its slot while it holds the key: asking again and renewing do not change it, even after smaller ones became free.",
		Needs: slots, run: slotIsKept},
	{Name: "SlotOfADeadHolderComesBack",
		Rule:  "The slot of a vanished holder is free once its lease has ended.",
		Needs: slots, run: slotComesBack},
	{Name: "ReaderHasNoSlot",
		Rule:  "A reader without a Limit has slot 0 and takes it from nobody; Inspect shows each holder's Limit and Slot.",
		Needs: slots, run: readerHasNoSlot},
	{Name: "LimitedQueueIsInOrder",
		Rule:  "The queue for a key with a Limit is served in order: each release makes room for one, with its slot.",
		Needs: slotsQueue, claims: true, run: limitedQueue},
	{Name: "LargerLimitLetsSeveralIn",
		Rule:  "When the holder with the smallest Limit releases, as many from the front of the queue are granted the key as the limits then allow, and get hints.",
		Needs: slotsQueue, run: largerLimit},
	{Name: "DeadHoldersLetAsManyIn",
		Rule:  "When the leases of all holders of a key with a Limit expire, as many from the front of the queue are granted the key once the first of them asks, and get hints.",
		Needs: slotsQueue, timely: true, run: deadHoldersLetIn},
	{Name: "FirstInTheQueueKnowsWhenThereIsRoom",
		Rule:  "The first in the queue for a key with a Limit learns when the first of the leases ends that makes room.",
		Needs: slotsQueue, timely: true, run: firstKnowsOfRoom},
	{Name: "LimitOfOne",
		Rule:  "A Limit of 1 is one holder at a time.",
		Needs: slots, run: limitOfOne},
	{Name: "ConvertTakesASlot",
		Rule:  "A holder that converts with a Limit has slot 0, and others are granted the key until the Limit is reached.",
		Needs: slots, run: convertTakesASlot},
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

// fill grants all the holds that a limit allows, in the order of their slots.
func (e *env) fill(key string, limit int) []contend.Owner {
	e.Helper()
	ds := []driver.Driver{e.d, e.open(), e.open()}
	var rs []contend.Owner
	for i := range limit {
		rs = append(rs, e.slotted(key, limit))
		e.grantSlot(ds[i%len(ds)], rs[i], i)
	}
	return rs
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

func limitIsKept(e *env) {
	const n = 4
	rs := e.fill("k", n)
	for i := range n {
		e.sharedBy(rs...)
		next := e.slotted("k", n)
		res := e.refuse(e.open(), next)
		if res.Why != driver.Held || !plausible(res.Left, 0) || !slices.ContainsFunc(rs, func(r contend.Owner) bool { return r.Owner == res.Holder.Owner }) {
			e.Errorf("hold %d of %d: %+v, want Held, one of the holders and what it has left", n+1, n, res)
		}
		e.refuse(e.d, e.ask("k"))
		e.release(e.d, rs[i])
		e.grant(e.d, next)
		rs[i] = next
	}
	e.releaseAll(rs...)
	e.free("k")
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

func smallestLimit(e *env) {
	a, b, r := e.slotted("k", 3), e.slotted("k", 5), e.reader("k")
	e.grant(e.d, a)
	e.refuse(e.d, e.slotted("k", 1)) // the one that asks
	e.grant(e.d, b)
	e.refuse(e.d, e.slotted("k", 2))
	e.grant(e.d, r) // it counts
	for _, next := range []contend.Owner{e.slotted("k", 3), e.slotted("k", 5), e.reader("k")} {
		e.refuse(e.d, next)
	}
	e.release(e.d, a) // who named the smallest
	e.grant(e.d, e.slotted("k", 5))
	e.refuse(e.d, e.slotted("k", 3))
	e.grant(e.d, e.reader("k"))
	e.grant(e.d, e.slotted("k", 5))
	e.refuse(e.d, e.slotted("k", 5))
	e.refuse(e.d, e.reader("k"))
}

func smallestSlot(e *env) {
	const n = 4
	rs := e.fill("k", n)
	e.release(e.d, rs[2])
	e.release(e.d, rs[1])
	for _, slot := range []int{1, 2} {
		rs[slot] = e.slotted("k", n)
		e.grantSlot(e.open(), rs[slot], slot)
	}
	e.releaseAll(rs...)
	e.grantSlot(e.d, e.slotted("k", n), 0)
	e.grantSlot(e.d, e.slotted("k", 2*n), 1) // of whatever Limit
}

func slotIsKept(e *env) {
	const n = 3
	rs := e.fill("k", n)
	e.release(e.d, rs[0])
	e.release(e.d, rs[1])
	for _, r := range []contend.Owner{rs[2], queued(rs[2])} {
		e.grantSlot(e.open(), r, 2)
		e.renewed(e.d, rs[2])
	}
	if info := e.sharedBy(rs[2]); info.Holder.Slot != 2 {
		e.Errorf("Inspect says %+v, want slot 2", info.Holder)
	}
	e.grantSlot(e.d, e.slotted("k", n), 0)
	e.grantSlot(e.d, rs[2], 2)
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

func readerHasNoSlot(e *env) {
	r, a, r2, b := e.reader("k"), e.slotted("k", 5), e.reader("k"), e.slotted("k", 6)
	e.grantSlot(e.d, r, 0)
	e.grantSlot(e.d, a, 0)
	e.grantSlot(e.d, r2, 0)
	e.grantSlot(e.d, b, 1)
	waits := needQueue.Met(e.d)
	if waits {
		e.join(e.d, e.slotted("k", 4), 0)
	}
	info := e.sharedBy(r, a, r2, b)
	for i, want := range []driver.Holder{{Limit: 0, Slot: 0}, {Limit: 5, Slot: 0}, {Limit: 0, Slot: 0}, {Limit: 6, Slot: 1}} {
		if h := info.Holders[i].Holder; h.Limit != want.Limit || h.Slot != want.Slot {
			e.Errorf("holder %d is %+v, want the Limit %d and the slot %d", i, h, want.Limit, want.Slot)
		}
	}
	if waits && (len(info.Queue) != 1 || info.Queue[0].Limit != 4 || info.Queue[0].Mode != driver.Shared) {
		e.Errorf("the queue is %+v", info.Queue)
	}
}

func limitedQueue(e *env) {
	const n = 3
	rs := e.fill("k", n)
	var ws []*listener
	for i := range 6 {
		ws = append(ws, e.await(e.open(), e.slotted("k", n), i))
	}
	for i, slot := range []int{1, 0, 2, 0, 2, 1} {
		e.release(e.d, rs[slot])
		if last := ws[len(ws)-1]; i < len(ws)-1 {
			e.refuse(last.d, queued(last.r))
		}
		rs[slot] = ws[i].r
		e.enter(ws[i])
		e.grantSlot(e.d, rs[slot], slot)
		for _, later := range ws[i+1:] {
			e.refuse(later.d, queued(later.r))
		}
	}
	e.releaseAll(rs...)
	e.free("k")
}

func largerLimit(e *env) {
	small, rs := e.slotted("k", 2), []contend.Owner{e.slotted("k", 5)}
	e.grant(e.d, small)
	e.grant(e.d, rs[0])
	var ws []*listener
	for i := range 5 {
		ws = append(ws, e.await(e.d, e.slotted("k", 5), i))
	}
	e.quiet(ws...)
	e.release(e.d, small)
	e.enter(ws[3], ws[2], ws[1], ws[0])
	e.sharedBy(append(rs, requests(ws[:4]...)...)...)
	e.refuse(e.d, queued(ws[4].r))
	e.release(e.d, rs[0])
	e.enter(ws[4])
}

func deadHoldersLetIn(e *env) {
	const n = 5
	for range n {
		e.grant(e.d, e.brief(e.slotted("k", n)))
	}
	ws := e.awaitAll(n+1, 0, func() contend.Owner { return e.slotted("k", n) })
	e.turn(ws[0].d, ws[0].r, e.ttl)
	e.eventually(e.ttl, "the leases of all that are gone end", func() bool { return e.inspect("k").Holds <= n })
	e.enter(ws[1:n]...)
	e.refuse(ws[n].d, queued(ws[n].r))
	e.sharedBy(requests(ws[:n]...)...)
}

func firstKnowsOfRoom(e *env) {
	a, gone, w := e.slotted("k", 2), e.brief(e.slotted("k", 2)), e.slotted("k", 2)
	e.grant(e.d, a)
	e.grant(e.d, gone)
	res := e.join(e.open(), w, 0)
	if res.RetryIn <= 0 || res.RetryIn > e.ttl || !plausible(res.Left, 0) || res.Left > e.ttl {
		e.Errorf("RetryIn is %v and Left %v, want more than 0 and no more than the %v of the one that makes room", res.RetryIn, res.Left, e.ttl)
	}
	e.turn(e.d, w, e.ttl)
	e.sharedBy(a, w)
}

func limitOfOne(e *env) {
	a, b := e.slotted("k", 1), e.slotted("k", 1)
	e.grantSlot(e.d, a, 0)
	for _, r := range []contend.Owner{b, e.slotted("k", 9), e.reader("k"), e.ask("k")} {
		e.refuse(e.d, r)
	}
	e.release(e.d, a)
	e.grantSlot(e.d, b, 0)
}

func convertTakesASlot(e *env) {
	a := e.ask("k")
	e.grant(e.d, a)
	r := converting(a)
	r.Limit = 2
	for range 2 {
		e.grantSlot(e.d, r, 0)
	}
	b := e.slotted("k", 2)
	e.grantSlot(e.d, b, 1)
	e.refuse(e.d, e.slotted("k", 2))
	if info := e.sharedBy(a, b); info.Holders[0].Holder.Limit != 2 {
		e.Errorf("the holder that converted is %+v, want the Limit 2", info.Holders[0])
	}
	e.grantSlot(e.d, sharing(a, 2), 0)
}

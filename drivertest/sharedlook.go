// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var sharedLookCases = []Case{
	{Name: "HostileLabelsOfSharers",
		Rule:  "Any label of up to 512 bytes is returned unchanged, for each owner that shares a key.",
		Needs: shared, run: sharersLabels},
	{Name: "HostileKeysAreShared",
		Rule:  "Any key of 1 to 512 bytes can be shared, from the first grant to the last release, and is no other key's.",
		Needs: shared, run: sharersKeys},
	{Name: "SharedKeysNamedLikeTheStoresOwn",
		Rule:  "A key with the name of something that the engine keeps for another key never harms those that share that key.",
		Needs: shared,
		play:  "grant r1 r2; collide; shared r1 r2; renew r1; release r1; renew r2; release r2"},
	{Name: "SharersAreListed",
		Rule:  "Inspect lists all that share a key in the order of their grants, each with its Mode, and the waiters with theirs; List counts them.",
		Needs: shared, run: sharersAreListed},
	{Name: "NothingStaysOfSharers",
		Rule:  "After every release, abandoned wait and expiry of those that shared a key the store holds nothing that does not expire.",
		Needs: shared,
		play: each(rounds(10), `grant r1@k# r2@k#; grant r3@k# brief; refuse w@k#; queue? join w@k#; queue? refuse r4@k# brief queued;
			queue? release w@k#; release r1@k# r2@k#; release r5@never# gone; grant r6@gone# brief`) + "empty"},
	{Name: "OneHolderIsListed",
		Rule: "Inspect lists the owner that holds a key Exclusive as its only holder.",
		run:  oneHolderIsListed},
}

func sharersLabels(e *env) {
	var rs []contend.Owner
	for _, label := range hostileLabels() {
		r := e.reader("k")
		r.Label = label
		e.grant(e.d, r)
		rs = append(rs, r)
		e.sharedBy(rs...)
	}
	for len(rs) > 0 {
		e.renewed(e.d, rs[0])
		e.release(e.d, rs[0])
		if rs = rs[1:]; len(rs) > 0 {
			e.sharedBy(rs...)
		}
	}
	e.free("k")
}

// sharersKeys shares all the keys at once: two that the engine confuses would have more
// holders.
func sharersKeys(e *env) {
	var as []contend.Owner
	for _, key := range hostileKeys() {
		as = append(as, e.reader(key))
		e.grant(e.d, as[len(as)-1])
	}
	other := e.open()
	for _, a := range as {
		b := e.reader(a.Key)
		e.grant(other, b)
		e.sharedBy(a, b)
		e.refuse(other, e.ask(a.Key))
		e.renewed(other, a)
		e.release(other, a)
		e.sharedBy(b)
		e.release(e.d, b)
		e.free(a.Key)
	}
}

func sharersAreListed(e *env) {
	var rs []contend.Owner
	var fences []uint64
	for i := range 3 {
		r := e.reader("k")
		r.TTL -= time.Duration(i) * e.ttl // the first has the most left
		fences = append(fences, e.grant(e.d, r).Fence)
		rs = append(rs, r)
	}
	w, last := e.ask("k"), e.reader("k")
	waits := needQueue.Met(e.d)
	if waits {
		e.join(e.d, w, 0)
		e.join(e.d, last, 1)
	}
	info := e.sharedBy(rs...)
	for i, l := range info.Holders {
		if !sameOwner(rs[i])(l) || !plausible(l.Left, 0) || l.Fence != 0 && l.Fence != fences[i] {
			e.Errorf("holder %d is %+v, want the owner %s with the fence %d", i, l, rs[i].Owner, fences[i])
		}
	}
	if first := info.Holders[0]; info.Holder != first.Holder || info.Fence != first.Fence {
		e.Errorf("the holder is %+v with the fence %d, the first in the list %+v", info.Holder, info.Fence, first)
	}
	if waits && (len(info.Queue) != 2 || info.Queue[0].Owner != w.Owner || info.Queue[0].Mode != driver.Exclusive ||
		info.Queue[1].Owner != last.Owner || info.Queue[1].Mode != driver.Shared) {
		e.Errorf("the queue is %+v", info.Queue)
	}
	listed := e.list("k")["k"]
	if !listed.Held || listed.Holds != len(rs) || listed.Holder.Mode != driver.Shared || listed.Waiters != info.Waiters {
		e.Errorf("List says %+v", listed)
	}
}

func oneHolderIsListed(e *env) {
	a := e.ask("k")
	res := e.grant(e.d, a)
	info := e.heldBy(a)
	if info.Holds != 1 || len(info.Holders) != 1 || !sameOwner(a)(info.Holders[0]) || !plausible(info.Holders[0].Left, 0) ||
		info.Holder.Mode != driver.Exclusive {
		e.Errorf("the holders are %d: %+v", info.Holds, info.Holders)
	} else if f := info.Holders[0].Fence; f != info.Fence || f != 0 && f != res.Fence {
		e.Errorf("the fence is %d, to Inspect %d and %d", res.Fence, info.Fence, f)
	}
	if listed := e.list("k")["k"]; listed.Holds != 1 {
		e.Errorf("List says %+v", listed)
	}
	e.release(e.d, a)
	if info := e.inspect("k"); info.Holds != 0 || len(info.Holders) != 0 {
		e.Errorf("a free key: %+v", info)
	}
}

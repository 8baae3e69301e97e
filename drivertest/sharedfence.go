// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"github.com/hasplock/hasp/internal/contend"
)

var (
	sharedFencing = []Need{needShared, needFencing}
	sharedNode    = []Need{needShared, needNode}
)

var sharedFenceCases = []Case{
	{Name: "FencesRiseOverSharers",
		Rule:  "Each owner that shares a key has a larger fence than every writer before it, and a later writer has a larger one than any of them.",
		Needs: sharedFencing,
		play:  "grant w; release w;" + each(rounds(5), "exact r1..r5 fresh spread above=w; release r1..r5 here; grant w fresh rises; release w")},
	{Name: "FencesRiseAmongSharers",
		Rule:  "A store that mints fences gives each owner that shares a key a strictly larger one than all before it.",
		Needs: sharedNode,
		play:  "grant r1..r9 spread rises; release r1..r9 here; grant r10 rises"},
	{Name: "ReadersMayOvertakeEachOther",
		Rule:  "A Shared proposal is granted beside other readers, or after them, though their fences are larger: it only has to be above those that were granted Exclusive.",
		Needs: sharedNode,
		play: "grant n; release n;" + each(downTo(10, 6), "exact r# at=n+#00") +
			"release r10..r6; exact r5 at=n+50; release r5; grant a above=n+1000"},
	{Name: "ReadersDoNotOvertakeWriters",
		Rule:  "A Shared proposal that is not above every fence granted Exclusive is refused with FenceTooLow and that one, also if the writer converted or other readers were granted the key since.",
		Needs: sharedNode,
		play: "grant n; release n; exact w at=n+1000; refuse r1 at=n+1000 why=held least=n+1000; convert w at=n+1000;" + tooLow +
			"exact r2 at=n+2000;" + tooLow + "release w exclusive; release r2;" + tooLow + "free; exact r3 at=n+1001"},
	{Name: "WritersDoNotOvertakeReaders",
		Rule:  "An Exclusive proposal that is not above every fence of the key, including readers', is refused with FenceTooLow and the newest.",
		Needs: sharedNode,
		play: `grant n; release n; exact r1 at=n+1000; exact r2 at=n+500; refuse w at=n+600 why=held least=n+1000; release r1 r2;
			refuse w at=n+600 why=low least=n+1000; free; refuse w at=n+1000 why=low least=n+1000; free; exact w at=n+1001`},
	{Name: "SharerKeepsItsFence",
		Rule:  "A proposal by a sharing holder is answered with the fence it has; with Raise it gets the proposed one, and one that is smaller, or far above the clock, is refused with FenceTooLow and the fence it has.",
		Needs: sharedNode,
		play: "grant n; release n; exact r1 at=n+2000; exact r2 at=n+1000;" +
			each([]string{"1", "n+990", "n+1000", "n+1010"}, "exact r2 at=# is=n+1000") + `exact r2 at=n+1100 raise;
			refuse r2 at=n+1000 raise why=low least=n+1099; refuse r2 at=n+1099511627776 raise why=low least=n+1100;
			exact r2 at=n+1000 is=n+1100; exact r1 at=n+2000`},
	{Name: "SharedClaimTakesTheProposal",
		Rule:  "A reader that was handed the key claims it with exactly the fence that it proposes, though one that was handed it at the same time has a larger one; a fence below the previous writer's is refused.",
		Needs: []Need{needShared, needNode, needHandoff}, claims: true,
		play: `grant n; release n; exact w at=n+1000; join r1 at=w+500; join r2 at=w+200; release w; refuse r2 at=w why=low least=w;
			shared r1 r2; renew r2 at=w+200 gone; exact r1 at=w+500; exact r2 at=w+200; exact r2 at=w+1500 is=w+200`},
	{Name: "RestoreOfASharedLease",
		Rule:  "Restore restores a Shared lease with its fence, on a free key or beside other readers, though readers had larger ones since, but not if the key was granted Exclusive since.",
		Needs: sharedNode,
		play: `grant n; release n; exact r2 at=n+2000; grant r1 brief at=n+1000 is=n+1000; until holds=1; exact r1 restore at=n+1000;
			shared r1 r2; release r1 settled; release r2; exact r1 settled restore at=n+1000; release r1 settled; exact w at=n+3000;
			refuse r1 restore at=n+1000 why=held; refuse r1 restore at=n+3010 why=held; release w;
			refuse r1 restore at=n+1000 why=low least=n+3000; free; exact r3 at=n+3010;
			refuse r1 restore at=n+1000 why=low least=n+3000; shared r3`},
	{Name: "RestoreAfterAReader",
		Rule:  "Restore of an Exclusive lease is refused with FenceTooLow when a reader had a larger fence since, and as Held while readers hold the key.",
		Needs: sharedNode,
		play: `grant n; release n; exact r1 at=n+1000; refuse w restore at=n+1010 why=held; release r1;
			refuse w restore at=n+999 why=low least=n+1000; free; exact w restore at=n+1010`},
	{Name: "RenewComparesASharersFence",
		Rule:  "Renew with a fence prolongs the lease of a reader that has it or a larger one, and is ErrNotHeld if it has a smaller one, whatever other readers have.",
		Needs: sharedNode,
		play: `grant n; release n; exact r1 at=n+1000; exact r2 at=n+2000; renew r1 at=n+1001 gone; renew r1 at=n+2000 gone;
			renew r1 at=0; renew r1 at=n+999; renew r1 at=n+1000; renew r1 at=n+1001 gone; renew r1 at=n+2000 gone; shared r1 r2`},
	{Name: "SharedReleaseUpToAFence",
		Rule:  "A Release up to a fence leaves a reader's lease with a larger one as it is, and ends any other.",
		Needs: sharedNode,
		play: `grant n; release n; exact r1 at=n+1000; exact r2 at=n+500; release r1 settled upto=n+999 gone; shared r1 r2;
			release r1 settled upto=n+1000; shared r2; exact r1 at=n+1001;` +
			each(ends, "release r1 # upto=n+1000 gone; shared r1 r2; exact r1 at=n+1001") +
			"release r1 settled upto=n+1000 gone; shared r1 r2"},
	{Name: "HeldBackNodeSharesNothing",
		Rule:  "A store whose process was replaced grants nobody a shared key, converts nothing and hands nothing off until it is admitted.",
		Needs: shared,
		play: `node; grant w@converted; grant r1@shared; grant r2@waited; queue? join n@waited; queue? join r3@converted; reload;
			heldback r4@shared; shared r1@shared; refuse w@converted converting why=notvoting; held w@converted; release r2@waited;
			unheld r2@waited; admit; convert w@converted; grant r5@shared; queue? turn n@waited`},
}

// holdsFence fails unless the store says that r holds its key with that fence.
func (e *env) holdsFence(r contend.Owner, fence uint64) {
	e.Helper()
	for _, l := range e.inspect(r.Key).Holders {
		if sameOwner(r)(l) && (l.Fence == 0 || l.Fence == fence) {
			return
		}
	}
	e.Fatalf("%s does not hold %q with the fence %d: %+v", r.Owner, r.Key, fence, e.inspect(r.Key).Holders)
}

// tooLow are proposals of readers after a writer with the fence n+1000.
var tooLow = each([]string{"1", "n+999", "n+1000"}, "refuse r1 fresh at=# why=low least=n+1000")

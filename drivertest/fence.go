// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"github.com/hasplock/hasp/internal/contend"
)

var fencing = []Need{needFencing}

var fenceCases = []Case{
	{Name: "FencesRise", Needs: fencing, // failure case 31
		Rule: "Each later holder of a key has a strictly larger fence, on whichever connection it asked.",
		play: "100/1000 times; grant a spread rises; grant b@other spread; release a b@other"},
	{Name: "FencesRiseOverHandoffs", Needs: []Need{needFencing, needQueue},
		Rule: "A holder that was handed the key has a strictly larger fence than the previous one.",
		play: "grant w0 rises;" + each(rounds(20), "join w#+1; release w#; turn w#+1 rises; held w#+1; has w#+1 same")},
	{Name: "FencesRiseOverExpiry", Needs: fencing,
		Rule: "A holder after one whose lease expired has a strictly larger fence.",
		play: "inherit a brief rises; inherit b brief rises; inherit c brief rises; inherit d brief rises; queue? turn w in=ttl rises"},
	{Name: "FencesRiseOverIdleTime", Needs: fencing,
		Rule: "Fences keep rising after the key was free for a long time and the store keeps nothing for it.",
		play: "grant a rises; release a; free; idle; grant b elsewhere rises"},
	{Name: "FencesInARow", Needs: fencing,
		Rule: "A grant of several fences has them all above earlier and below later ones; asking again returns only the last.",
		play: `grant z; release z; grant a fences=5 row=5/z; grant a elsewhere fences=5 same once; queue? join b fences=5; release a;
			turn b fences=5 row=5/a; release b; grant c rises`},
	{Name: "ProposedFenceIsGranted", Needs: proposable,
		Rule: "A proposed fence above every fence of the key is granted exactly, and remains the holder's.",
		play: "grant n; release n; exact b at=n+1000; exact b at=n+1000; release b; grant c above=n+1000"},
	{Name: "LowProposalIsRefused", Needs: proposable,
		Rule: "A proposed fence that is not above every fence of the key is refused with FenceTooLow and the newest, and grants nothing.",
		play: `grant n; release n; refuse a at=1 why=low least=n; free; refuse b at=n-1 why=low least=n; free;
			refuse c at=n why=low least=n; free; refuse d at=n why=low least=n names=x; grant e at=x+1`},
	{Name: "ProposalFarAheadIsRefused", Needs: proposable,
		Rule: "A proposed fence far above the node's clock is refused with FenceTooLow, also of a holder and with Restore, and the fence after that of the refusal is granted.",
		play: "grant n; release n;" + each([]string{"3600000000", "36000000000000000"}, // an hour, and ten million
			`refuse f fresh at=n+# why=low least=n below=n+# names=x; refuse f at=n+# restore why=low least=n; free;
			exact a fresh settled at=x+1; refuse a settled at=a+# raise why=low least=a; exact a settled at=x+1;
			release a settled`)},
	{Name: "ProposalsMayOvertakeEachOther", Needs: proposable,
		Rule: "Proposals for different keys that arrive in a different order from the one in which they were made are all granted.",
		play: "grant n@k10; release n@k10;" + each(downTo(10, 1), "exact a@k# at=n@k10+#00")},
	{Name: "MintedAndProposedFencesRise", Needs: []Need{needNode, needFencing},
		Rule: "A minted fence is above every proposed one of the key, and a fence that is proposed next must be above it.",
		play: "grant m; release m;" + each(rounds(5), `exact a fresh at=m+50000;
			queue? join b fresh; queue? release a; queue? turn b rises; queue? release b; noqueue? release a;
			grant m fresh rises; release m; refuse c fresh at=m why=low least=m`)},
	{Name: "ProposedFencesInARow", Needs: proposable,
		Rule: "A proposal of several fences is granted those up to the proposal that are above every fence of the key; asking again returns only the last.",
		play: `grant n; release n; exact a at=n+1000 fences=5 got=5; exact a at=n+1000 fences=5 once; release a;
			exact b at=n+1002 fences=5 row=5/a; release b; refuse c at=b fences=5 why=low least=b`},
	{Name: "HeldRefusalNamesTheFence", Needs: proposable,
		Rule: "A proposal for a key that is held is refused as Held, with a fence that is at least the holder's, and below the next proposal that can be granted.",
		play: `grant n; release n; exact a at=n+1000; refuse b at=1 why=held least=n+1000; refuse b at=a why=held least=a;
			refuse b at=a+1000 why=held least=a names=x; release a; exact b at=x+1`},
	{Name: "HolderKeepsItsFence", Needs: proposable,
		Rule: "A proposal by the holder is answered with the fence it has, whether larger, equal or smaller.",
		play: "grant a@minted;" + each([]string{"+10", "+0", "-10"}, "exact a@minted at=a@minted# is=a@minted") +
			"exact a@minted at=1 is=a@minted; grant n; release n; grant b at=n+1000;" +
			each([]string{"b+10", "b", "b-10", "1"}, "exact b at=# is=b")},
	{Name: "HolderMayRaiseItsFence", Needs: proposable,
		Rule: "A holder that raises its fence is granted exactly the proposed one, and refused one below its own.",
		play: `grant a names=x; exact a at=x raise; exact a at=x+10 raise; exact a at=x+10 raise; refuse b at=x+1010 raise;
			has a same shown; refuse a at=x raise why=low least=x+9; exact a at=x+10 raise; release a;
			refuse c at=x+10 why=low least=x+10; grant d above=x+10`},
	{Name: "ClaimTakesTheProposal", Needs: []Need{needNode, needHandoff}, claims: true,
		Rule: "A claim of a handed-off key with a proposal is granted exactly that fence; too low a proposal is refused, and the key remains handed off.",
		play: `grant n; release n; exact a at=n+1000; join b at=a; release a; held b; refuse b at=a why=low least=a names=x; held b;
			exact b at=x+1000; exact b at=x+2000 is=b`},
	{Name: "RestoreGivesALeaseBack", Needs: proposable, timely: true,
		Rule: "Restore grants a free key with the fence that the owner has on other nodes, though other keys had newer ones.",
		play: `grant n; release n; exact a brief at=n+1000; expires; exact b@other at=n+2000; release b@other; grant m@other;
			release m@other; exact a brief restore at=n+1000; exact u@unseen restore at=m@other-10;
			exact u@unseen restore raise at=m@other+10 is=u@unseen; release u@unseen; grant c@unseen above=m@other-10`},
	{Name: "RestoreAfterALaterFence", Needs: proposable,
		Rule: "Restore is refused with FenceTooLow when the key had a larger fence since, whether it was proposed or minted.",
		play: `grant n@minted; release n@minted; grant p@proposed at=n@minted+1000; release p@proposed;
			refuse a@minted restore at=n@minted-1 why=low least=n@minted; free a@minted; exact a@minted restore at=n@minted;
			refuse b@proposed restore at=n@minted+999 why=low least=n@minted+1000; free b@proposed;
			exact b@proposed restore at=n@minted+1000`},
	{Name: "RestoreSparesTheHolder", Needs: proposable,
		Rule: "Restore of a key that another holds is refused as Held, and changes nothing.",
		play: "grant n; release n; exact a at=n+1000;" +
			each([]string{"990", "1000", "1010"}, "refuse r fresh restore at=n+# why=held; exact a at=n+1000") +
			"queue? join b; queue? release a; queue? refuse r fresh restore at=n+1010; queue? turn b"},
	{Name: "RenewComparesTheFence", Needs: []Need{needNode},
		Rule: "Renew with a fence prolongs a lease that has it or a larger one, and is ErrNotHeld for a smaller one.",
		play: `grant n; release n; exact a at=n+1000; renew a at=n+1001 gone; renew a at=0; renew a at=n+999; renew a at=n+1000;
			renew a at=n+1001 gone; held a`},
	{Name: "RenewIsNoClaim", Needs: []Need{needNode, needHandoff}, claims: true,
		Rule: "Renew with a fence of a key that was handed off and not claimed is ErrNotHeld.",
		play: `grant n; release n; exact a at=n+1000; join b at=n+2000; release a; renew b at=n+2000 gone; renew b at=n+1000 gone;
			turn b at=n+2000`},
	{Name: "ReleaseUpToAFence", Needs: []Need{needNode},
		Rule: "A Release up to a fence leaves a lease with a larger one as it is, whether or not a Try may still arrive, and ends any other.",
		play: "grant n; release n; exact a at=n+1000; release a settled upto=n+999 gone; held a; release a settled upto=n+1000; free; exact a at=n+1001;" +
			each(ends, "release a # upto=n+1000 gone; held a; exact a at=n+1001") + "release a settled upto=n+1000 gone; held a"},
	{Name: "FencesRiseOverSharers", Needs: sharedFencing,
		Rule: "Each owner that shares a key has a larger fence than every writer before it, and a later writer has a larger one than any of them.",
		play: "grant w; release w;" + each(rounds(5), "exact r1..r5 fresh spread above=w; release r1..r5 here; grant w fresh rises; release w")},
	{Name: "FencesRiseAmongSharers", Needs: sharedNode,
		Rule: "A store that mints fences gives each owner that shares a key a strictly larger one than all before it.",
		play: "grant r1..r9 spread rises; release r1..r9 here; grant r10 rises"},
	{Name: "ReadersMayOvertakeEachOther", Needs: sharedNode,
		Rule: "A Shared proposal is granted beside other readers, or after them, though their fences are larger: it only has to be above those that were granted Exclusive.",
		play: "grant n; release n;" + each(downTo(10, 6), "exact r# at=n+#00") +
			"release r10..r6; exact r5 at=n+50; release r5; grant a above=n+1000"},
	{Name: "ReadersDoNotOvertakeWriters", Needs: sharedNode,
		Rule: "A Shared proposal that is not above every fence granted Exclusive is refused with FenceTooLow and that one, also if the writer converted or other readers were granted the key since.",
		play: "grant n; release n; exact w at=n+1000; refuse r1 at=n+1000 why=held least=n+1000; convert w at=n+1000;" + tooLow +
			"exact r2 at=n+2000;" + tooLow + "release w exclusive; release r2;" + tooLow + "free; exact r3 at=n+1001"},
	{Name: "WritersDoNotOvertakeReaders", Needs: sharedNode,
		Rule: "An Exclusive proposal that is not above every fence of the key, including readers', is refused with FenceTooLow and the newest.",
		play: `grant n; release n; exact r1 at=n+1000; exact r2 at=n+500; refuse w at=n+600 why=held least=n+1000; release r1 r2;
			refuse w at=n+600 why=low least=n+1000; free; refuse w at=n+1000 why=low least=n+1000; free; exact w at=n+1001`},
	{Name: "SharerKeepsItsFence", Needs: sharedNode,
		Rule: "A proposal by a sharing holder is answered with the fence it has; with Raise it gets the proposed one, and a smaller one, or one far above the clock, is refused with FenceTooLow and the fence it has.",
		play: "grant n; release n; exact r1 at=n+2000; exact r2 at=n+1000;" +
			each([]string{"1", "n+990", "n+1000", "n+1010"}, "exact r2 at=# is=n+1000") + `exact r2 at=n+1100 raise;
			refuse r2 at=n+1000 raise why=low least=n+1099; refuse r2 at=n+1099511627776 raise why=low least=n+1100;
			exact r2 at=n+1000 is=n+1100; exact r1 at=n+2000`},
	{Name: "SharedClaimTakesTheProposal", Needs: []Need{needShared, needNode, needHandoff}, claims: true,
		Rule: "A reader that was handed the key claims it with exactly the fence that it proposes, though another reader that was handed it at the same time has a larger one; a fence below the previous writer's is refused.",
		play: `grant n; release n; exact w at=n+1000; join r1 at=w+500; join r2 at=w+200; release w; refuse r2 at=w why=low least=w;
			shared r1 r2; renew r2 at=w+200 gone; exact r1 at=w+500; exact r2 at=w+200; exact r2 at=w+1500 is=w+200`},
	{Name: "RestoreOfASharedLease", Needs: sharedNode,
		Rule: "Restore restores a Shared lease with its fence, on a free key or beside other readers, though readers had larger ones since, but not if the key was granted Exclusive since.",
		play: `grant n; release n; exact r2 at=n+2000; grant r1 brief at=n+1000 is=n+1000; until holds=1; exact r1 restore at=n+1000;
			shared r1 r2; release r1 settled; release r2; exact r1 settled restore at=n+1000; release r1 settled; exact w at=n+3000;
			refuse r1 restore at=n+1000 why=held; refuse r1 restore at=n+3010 why=held; release w;
			refuse r1 restore at=n+1000 why=low least=n+3000; free; exact r3 at=n+3010;
			refuse r1 restore at=n+1000 why=low least=n+3000; shared r3`},
	{Name: "RestoreAfterAReader", Needs: sharedNode,
		Rule: "Restore of an Exclusive lease is refused with FenceTooLow when a reader had a larger fence since, and as Held while readers hold the key.",
		play: `grant n; release n; exact r1 at=n+1000; refuse w restore at=n+1010 why=held; release r1;
			refuse w restore at=n+999 why=low least=n+1000; free; exact w restore at=n+1010`},
	{Name: "RenewComparesASharersFence", Needs: sharedNode,
		Rule: "Renew with a fence prolongs the lease of a reader that has it or a larger one, and is ErrNotHeld if it has a smaller one, whatever other readers have.",
		play: `grant n; release n; exact r1 at=n+1000; exact r2 at=n+2000; renew r1 at=n+1001 gone; renew r1 at=n+2000 gone;
			renew r1 at=0; renew r1 at=n+999; renew r1 at=n+1000; renew r1 at=n+1001 gone; renew r1 at=n+2000 gone; shared r1 r2`},
	{Name: "SharedReleaseUpToAFence", Needs: sharedNode,
		Rule: "A Release up to a fence leaves a reader's lease with a larger one as it is, and ends any other.",
		play: `grant n; release n; exact r1 at=n+1000; exact r2 at=n+500; release r1 settled upto=n+999 gone; shared r1 r2;
			release r1 settled upto=n+1000; shared r2; exact r1 at=n+1001;` +
			each(ends, "release r1 # upto=n+1000 gone; shared r1 r2; exact r1 at=n+1001") +
			"release r1 settled upto=n+1000 gone; shared r1 r2"},
	{Name: "HeldBackNodeSharesNothing", Needs: shared,
		Rule: "A store whose process was replaced grants no owner a shared key, converts nothing and hands nothing off until it is admitted.",
		play: `node; grant w@converted; grant r1@shared; grant r2@waited; queue? join n@waited; queue? join r3@converted; reload;
			heldback r4@shared; shared r1@shared; refuse w@converted converting why=notvoting; held w@converted; release r2@waited;
			unheld r2@waited; admit; convert w@converted; grant r5@shared; queue? turn n@waited`},
}

var proposable = []Need{needNode}

// ends lists the ways in which a lease may end: a release without an answer is sent again, and arrives late.
var ends = []string{"", "unused", "unfinished"}

var (
	sharedFencing = []Need{needShared, needFencing}
	sharedNode    = []Need{needShared, needNode}
)

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

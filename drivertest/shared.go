// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var shared = []Need{needShared}

var sharedCases = []Case{
	{Name: "SharersHoldTogether", Needs: shared,
		Rule: "Any number of owners that ask Shared hold a key together, and an owner that asks Exclusive is refused until the last of them is gone.",
		play: `grant r1..r5 spread; shared r1..r5; refuse a why=held left by=r1,r2,r3,r4,r5; release r3 elsewhere;
			shared r1 r2 r4 r5; refuse b why=held left by=r1,r2,r4,r5; release r1 elsewhere; shared r2 r4 r5;
			refuse c why=held left by=r2,r4,r5; release r5 elsewhere; shared r2 r4; refuse d why=held left by=r2,r4;
			release r4 elsewhere; shared r2; refuse e why=held left by=r2; release r2 elsewhere; free; grant f`},
	{Name: "WriterKeepsSharersOut", Needs: shared,
		Rule: "While a key is held Exclusive, a Shared request is refused, and the answer names the holder and how long its lease lasts.",
		play: "grant a; refuse r1 why=held by=a left; refuse r1 elsewhere why=held by=a left; held a; release a; grant r1; shared r1"},
	{Name: "OneWriterOrSharersAtOnce", Needs: shared,
		Rule: "Of many simultaneous requests for a free key, either one Exclusive request is granted and no other, or some Shared ones and no other.",
		play: "5 times; ask a1..a8 spread=5 & ask r1..r8 spread=5; won a1..a8 r1..r8; release a1..a8 r1..r8 here won; free"},
	{Name: "SharedTryAgainIsTheSameGrant", Needs: shared,
		Rule: "Asking Shared again with the same owner returns the standing grant with its fence, and adds no second hold.",
		play: "grant r1 r2; grant r1 elsewhere same; grant r1 elsewhere queued same; shared r1 r2; waits; release r1; shared r2"},
	{Name: "SharedTryEntersNoQueue", Needs: []Need{needShared, needQueue},
		Rule: "A sharing holder that asks again gets its standing grant, though a writer waits.",
		play: "grant r1; join w elsewhere; grant r1 elsewhere same; grant r1 elsewhere queued same; shared r1; waits w"},
	{Name: "SharedRefusalLeavesNoTrace", Needs: shared,
		Rule: "A refused Shared request without Queue leaves nothing in the store.",
		play: "grant a; refuse r1; refuse r1; refuse r1; held a; waits; release a; free"},
	{Name: "CopiesOfASharedRequestAtOnce", Needs: shared,
		Rule: "Copies of one Shared request that arrive at once, on several connections, are one hold.",
		play: `grant r0;` + each(rounds(10), `ask r1 fresh queued & ask r1 & ask r1 elsewhere=1 & ask r1 queued elsewhere=2; won r1;
			shared r0 r1; release r1; shared r0`)},
	{Name: "HostileLabelsOfSharers", Needs: shared,
		Rule: "Any label of up to 512 bytes is returned unchanged, for each owner that shares a key.",
		play: each(hostile(hostileLabels), "grant r# label=hostile#; shared r0..r#") +
			each(downTo(len(hostileLabels)-1, 1), "renew r#; release r#; shared r0..r#-1") + "renew r0; release r0; free"},
	{Name: "HostileKeysAreShared", Needs: shared, // all at once: two that the engine confuses would have more holders
		Rule: "Any key of 1 to 512 bytes can be shared, from the first grant to the last release, and is no other key's.",
		play: each(hostile(hostileKeys), "grant r1@hostile#") + each(hostile(hostileKeys), `grant r2@hostile# elsewhere=1;
			shared r1@hostile# r2@hostile#; refuse a@hostile# elsewhere=1; renew r1@hostile# elsewhere=1; release r1@hostile# elsewhere=1;
			shared r2@hostile#; release r2@hostile# here; free a@hostile#`)},
	{Name: "SharedKeysNamedLikeTheStoresOwn", Needs: shared,
		Rule: "A key with the name of something that the engine keeps for another key never harms those that share that key.",
		play: "grant r1 r2; collide; shared r1 r2; renew r1; release r1; renew r2; release r2"},
	{Name: "SharersAreListed", Needs: shared, // the first has the most left
		Rule: "Inspect lists all that share a key in the order of their grants, each with its Mode, and the waiters with theirs; List counts them.",
		play: "grant r1 longer; grant r2; grant r3 half; queue? join w r4; listed r1..r3; queue? waits w r4"},
	{Name: "NothingStaysOfSharers", Needs: shared,
		Rule: "After every release, abandoned wait and expiry of those that shared a key the store holds nothing that does not expire.",
		play: each(rounds(10), `grant r1@k# r2@k#; grant r3@k# brief; refuse w@k#; queue? join w@k#; queue? refuse r4@k# brief queued;
			queue? release w@k#; release r1@k# r2@k#; release r5@never# gone; grant r6@gone# brief`) + "empty"},
	{Name: "OneHolderIsListed",
		Rule: "Inspect lists the owner that holds a key Exclusive as its only holder.",
		play: "grant a; listed a; release a; listed"},
	{Name: "ModeIsKept", Needs: shared,
		Rule: "The holder's Try in another Mode without Convert is refused, joins no queue, and changes nothing.",
		play: `grant r1; refuse r1 exclusive longer; held r1; waits; has r1 usual; refuse r1 exclusive longer queued; held r1;
			waits; has r1 usual; grant r2; release r1 r2; grant a; refuse a sharing longer; held a; waits; has a usual;
			refuse a sharing longer queued; held a; waits; has a usual; refuse r3; release a; free`},
	{Name: "RenewInWhicheverMode", Needs: shared,
		Rule: "Renew and Release find the owner's lease in whichever Mode they name, and leave the Mode as it is.",
		play: `grant r1; renew r1 exclusive longer; held r1; has r1 longer; grant r2; release r2; release r1 exclusive; free;
			refuse r1; grant a; renew a sharing longer; held a; has a longer; refuse r3; release a sharing; free; refuse a`},
	{Name: "SharedReleaseIsTheOwnersAlone", Needs: shared,
		Rule: "Release by a reader ends its own lease and no other's: the second is ErrNotHeld, and a Try that arrives after it is refused.",
		play: "grant r1..r3 spread; release r4 gone;" + each(otherLabels, "release r2 here # gone; renew r2 here # gone") + `shared r1..r3;
			release r1 elsewhere; release r1 here gone; renew r1 here gone; refuse r1 here; refuse r1 here queued; shared r2 r3; waits;
			release r2 elsewhere; release r2 here gone; renew r2 here gone; refuse r2 here; refuse r2 here queued; shared r3; waits;
			release r3 elsewhere; release r3 here gone; renew r3 here gone; refuse r3 here; refuse r3 here queued; free;
			release r5 gone; refuse r5; free`},
	{Name: "SettledSharerMayAskAgain", Needs: shared,
		Rule: "The engine does not remember a settled Release of a reader: the same owner may ask again.",
		play: "grant r2;" + each(rounds(3), "grant r1 settled; shared r1 r2; release r1 settled; release r1 settled gone") + "shared r2"},
	{Name: "EachSharerHasItsOwnExpiry", Needs: shared,
		Rule: "A Try or a Renew by a reader sets the expiry of its own lease to a later moment, never to an earlier one, and changes no other's.",
		play: `grant r2 r3; grant r2 brief; renew r3 brief; outlasts r2 r3; grant r1 brief; renew r2; grant r3; has r1 perhaps left=ttl;
			grant r1 longer; has r1 longer; renew r2 longer; has r2 longer; has r3 usual`},
	{Name: "SharedLeaseEnds", Needs: shared,
		Rule: "A reader's lease ends after the TTL of its Try, not before, and does not affect the others'.",
		play: `grant r2; grant r1 brief; until holds=1 in=r1 after=r1; renew r1 gone; release r1 gone; shared r2; refuse a; release r2;
			grant r3 brief; inherit w; renew r3 gone; held w`},
	{Name: "WriterWaitsForAllSharers", Needs: sharedQueue,
		Rule: "A writer in the queue is granted the key when the last of those that share it released it, and gets a hint then.",
		play: `grant r1..r3 spread; await w elsewhere; release r2 here; refuse w queued; shared r1 r3; release r3 here; refuse w queued;
			shared r1; release r1 here; enter w; held w; release w here; free`},
	{Name: "WaitingWriterStopsLaterReaders", Needs: sharedQueue,
		Rule: "While a writer waits for those that share a key, no later request is granted beside them, with or without Queue, and each refusal says how many are ahead.",
		play: `grant r1; join w; refuse r2 elsewhere ahead=1; shared r1; waits w; join r2; refuse r3 elsewhere=r2; shared r1;
			release r1; turn w; refuse r2 queued; release w; turn r2`},
	{Name: "NeighboursEnterTogether", Needs: sharedQueue,
		Rule: "Consecutive readers at the front of the queue hold the key together once it is released, and no reader behind the next writer does.",
		play: `grant a; await r1; await r2 elsewhere; await w elsewhere=r2; await r3; refuse r2 queued; release a; enter r2 r1;
			quiet r3; refuse w queued; shared r1 r2; waits w r3; release r1 elsewhere=r2; refuse w queued; release r2; enter w;
			held w; release w here; enter r3; shared r3`},
	{Name: "NeighboursAllGetHints", Needs: sharedQueue,
		Rule: "Each of many readers at the front of the queue gets a hint when it is granted the key, so that asking only then is enough for all.",
		play: `grant a; await r1..r150 spread; release a; enter r150..r1; shared r1..r150; await w; release r1..r150 here; enter w;
			held w`},
	{Name: "MixedQueueIsInOrder", Needs: sharedQueue, claims: true,
		Rule: "Writers and groups of readers are served in the order of the queue.",
		play: `grant a; await r1 r2 b r3 c r4..r6; release a; enter r1 r2; refuse b r3 c r4..r6 queued; shared r1 r2; release r1 r2;
			enter b; refuse r3 c r4..r6 queued; held b; release b; enter r3; refuse c r4..r6 queued; shared r3; release r3;
			enter c; refuse r4..r6 queued; held c; release c; enter r4..r6; shared r4..r6; release r4..r6; free`},
	{Name: "WriterThatLeavesLetsReadersIn", Needs: sharedQueue,
		Rule: "When a writer that waits for those that share a key gives up, the readers behind it are granted the key beside them and get hints.",
		play: `grant r0; join w; await r1; await r2 elsewhere; await b; quiet r1 r2; release w; enter r2 r1; refuse b queued;
			shared r0 r1 r2; release r0..r2 here; enter b`},
	{Name: "DeadWaitingWriterLetsReadersIn", Needs: sharedQueue,
		Rule: "A waiting writer without a sign of life for its patience no longer makes readers wait.",
		play: "grant r0; refuse w brief queued; ask r1 queued; turn r1 in=ttl; turn r2; shared r0..r2"},
	{Name: "DeadReaderDelaysForItsTTL", Needs: sharedQueue, timely: true,
		Rule: "A vanished reader makes a writer wait until its lease ends, and no longer.",
		play: "grant r1; grant r2 brief; join w; join r3; release r1; inherit w queued over=r3; held w"},
	{Name: "DeadWriterHandsOnToReaders", Needs: sharedQueue, timely: true,
		Rule: "When a writer's lease expires all the readers at the front of the queue are granted the key, and no waiter behind them.",
		play: "grant d brief; join r1; join r2 elsewhere; join w; inherit r1 queued; turn r2; refuse w queued; shared r1 r2"},
	{Name: "DeadWriterLetsAllReadersIn", Needs: sharedQueue, timely: true,
		Rule: "When a writer's lease expires all the readers at the front of the queue are granted the key once the first of them asks, and get hints, so that asking only then is enough for all.",
		play: `grant a; join d mortal; await r1..r40 spread; await w; release a; turn d mortal; turn r1 in=ttl; enter r2..r40;
			refuse w queued; shared r1..r40`},
	{Name: "WriterKnowsTheLastExpiry",
		Rule:  "A writer that is first in the queue learns when the last lease of those that share the key ends.",
		Needs: sharedQueue, run: writerKnowsTheLast},
	{Name: "EarlierExpiryWakesTheFirst", Needs: sharedQueue, timely: true,
		Rule: "When the reader whose lease would have ended last releases it, the first in the queue gets a hint when the last of the others ends, so that asking only then is enough.",
		play: "grant r1; grant r2 brief; await w elsewhere; release r1; enter w in=ttl; held w"},
	{Name: "EachSharerLearnsThatSomebodyWaits", Needs: sharedQueue,
		Rule: "The answer to each reader's renewal says whether an owner waits.",
		play: "grant r1..r3 spread; renewals r1..r3; join w; renewals r1..r3 wanted; release w; renewals r1..r3"},
	{Name: "WriterJoinsWhileReadersRelease", Needs: sharedQueue,
		Rule: "An owner that joins the queue while the last readers release the key, or a reader that joins while a writer does, is granted the key or gets a hint.",
		play: `50 times; grant r1; grant r2 elsewhere=1; listen w elsewhere=1; release r1 & release r2 here & ask w queued; come w;
			listen r3; listen r4 elsewhere=1; release w here & ask r3 queued & ask r4 queued; come r3 r4; shared r3 r4;
			release r3 r4 here; free`},
	{Name: "WriterGivesUpWhileReadersRelease", Needs: sharedQueue,
		Rule: "When a waiting writer gives up while those that share the key release it, all the readers behind it are granted the key, or get hints.",
		play: `50 times; grant r0; join w elsewhere=1; await r1; await r2 elsewhere=1; release r0 elsewhere=1 & release w here;
			enter r2 r1; refuse w queued here; shared r1 r2; release r1 r2 here; free`},
	{Name: "SharedHandoffIsAtOnce", Needs: sharedHandoff, claims: true,
		Rule: "A Release makes all the readers at the front of the queue holders at once, before they ask, and each claim takes the full TTL.",
		play: `grant a; join r1 elsewhere; join r2 w; release a; shared r1 r2; waits w; grant r1 queued elsewhere rises clean;
			has r1 full; grant r2 queued elsewhere rises clean; has r2 full`},
	{Name: "HandedOffReaderIsNoPlace", Needs: sharedHandoff, claims: true,
		Rule: "Renew of a reader's place that was handed the key is ErrNotHeld, while those still in the queue keep theirs.",
		play: "grant a; join r1 r2 w; release a; renew r2 r1 queued gone; renew w queued; grant r2 r1 queued"},
	{Name: "ReleaseOfHandedOffSharesHandsThemOn", Needs: sharedHandoff, claims: true,
		Rule: "Readers that give up after they were handed the key leave it to those that were handed it at the same time, and the last of them to the next in the queue.",
		play: "grant a; join r1 r2 w; release a r1; shared r2; release r2; held w; refuse r1 queued; grant w queued; release w; free"},
	{Name: "UnclaimedSharesGoOn", Needs: sharedHandoff, timely: true,
		Rule: "A key that was handed to readers that never claim it goes to the writer behind them, within a bounded time.",
		play: "grant a; join r0..r4 brief; join w; release a; turn w in=3ttl; held w"},
	{Name: "LapsedSharesKeepTheirPlacesOnce", Needs: sharedHandoff,
		Rule: "Readers that did not claim the key once are still before later ones, in their order.",
		play: `grant a; join r1 r2 w b r3; release a; turn w in=long; held w; waits r1 r2 b r3; renew r1 r2 b r3 queued; release w;
			turn r1 r2; shared r1 r2; refuse r3 queued; release r1 r2; turn b`},
	{Name: "ConvertShares", Needs: shared,
		Rule: "A holder that converts keeps its lease and its fence, and from then on Shared requests are granted beside it, and no Exclusive one is.",
		play: `grant a; refuse r1; convert a elsewhere; shared a; waits; has a same; beside r1; beside r2 elsewhere; refuse b;
			shared a r1 r2; renew a; release a; shared r1 r2; release r1 r2 here; free`},
	{Name: "ConvertLetsReadersIn", Needs: sharedQueue,
		Rule: "A Convert grants the key to the readers at the front of the queue beside the holder and gives them hints, but to no reader behind the next writer.",
		play: `grant a; await r1; await r2 elsewhere; await w elsewhere=r2; await r3; convert a; enter r2 r1; quiet r3;
			refuse w queued; shared a r1 r2; waits w r3; release a r1 r2 here; enter w`},
	{Name: "ConvertTwice", Needs: shared, // a lost reply
		Rule: "Convert asked again is the standing grant, with the same fence, and changes nothing, whoever was granted the key meanwhile.",
		play: `grant a; convert a; convert a elsewhere; beside r1; convert a elsewhere; shared a r1; grant a same; release a exclusive;
			shared r1`},
	{Name: "ConvertOfNothing", Needs: shared,
		Rule: "Convert by an owner that holds nothing is refused, with or without Queue, on a free key and on a held one, and leaves nothing: the owner may still ask for the key.",
		play: `refuse b converting; refuse b converting queued; free; refuse c converting; grant c; refuse d converting;
			refuse d converting queued; held c; waits; release c; grant r1 r2 spread; refuse e converting; refuse e converting queued;
			grant e sharing; release e sharing; shared r1 r2; waits`},
	{Name: "ConvertAfterTheEnd", Needs: shared,
		Rule: "Convert by an owner whose lease ended or was released is refused, and takes nothing from later holders.",
		play: `grant a brief; expires; refuse a converting; free; grant b; refuse a converting; held b; release b;
			refuse b converting; free; grant r1 r2 spread; refuse b converting queued; shared r1 r2; waits`},
	{Name: "LateTryAfterConvert", Needs: shared,
		Rule: "A Try Exclusive by a holder that converted is refused, joins no queue and takes the key from no holder.",
		play: `grant a; convert a; refuse a exclusive elsewhere; shared a; waits; refuse a exclusive queued elsewhere; shared a;
			waits; beside r1; refuse a exclusive elsewhere; shared a r1; waits; refuse a exclusive queued elsewhere; shared a r1;
			waits; convert a`},
	{Name: "LateRenewAfterConvert", Needs: shared,
		Rule: "A Renew as Exclusive after a Convert prolongs the lease and leaves it Shared, and a Release as Exclusive releases it.",
		play: `grant a; convert a; renew a exclusive longer; has a longer; beside r1; shared a r1; release a exclusive; shared r1;
			release a gone`},
	{Name: "ConvertProlongs", Needs: shared,
		Rule: "Convert sets the expiry to now + TTL when that is later, never to an earlier moment.",
		play: "grant a; convert a brief; outlasts a; grant b@other; convert b@other longer; has b@other longer"},
	{Name: "WriterAfterConvert", Needs: sharedQueue,
		Rule: "A writer in the queue is granted the key once the holder that converted and all readers beside it are gone, with a larger fence than any of them.",
		play: `grant a; convert a; beside r1; await w elsewhere; refuse w queued; release a exclusive; refuse w queued; release r1; enter w;
			held w; grant w rises`},
	{Name: "ConvertRacesWithJoin", Needs: sharedQueue,
		Rule: "A Shared request during a Convert is granted, or gets a hint to ask again, and no owner is ever granted the key Exclusive.",
		play: `50 times; grant a; listen r1 elsewhere=1; convert a & ask r1 queued & refuse w elsewhere=2; come r1; shared a r1;
			release a r1 here; free`},
	{Name: "ConvertComparesTheFence", Needs: []Need{needShared, needNode},
		Rule: "Convert with a fence is refused, and changes nothing, if the owner only has a smaller one, or was handed the key and did not claim it.",
		play: `grant n; release n; exact a at=n+1000; refuse a converting at=a+1 why=held; refuse r1; held a; convert a at=a-1;
			convert a at=a; refuse a converting at=a+1; grant r1; release a exclusive; release r1; handoff? grant c; handoff? join d;
			handoff? release c; handoff? refuse d converting at=c; handoff? refuse r2; handoff? turn d`},
	{Name: "NoLimitWithoutSlots", Needs: []Need{needShared, needNoSlots},
		Rule: "An engine that shares keys without counting answers a Limit with ErrUnsupported, and never with a grant.",
		play: "cannot s1/2 unsupported; free"},
	{Name: "LimitIsKept", Needs: slots,
		Rule: "Limit owners hold a key together, and the next is refused until one of them is gone.",
		play: each(rounds(4), "grant s#/4 spread slot=#") + `
			shared s0..s3/4; refuse s4/4 elsewhere why=held left by=s0/4,s1/4,s2/4,s3/4; refuse a; release s0/4 here; grant s4/4 here;
			shared s1..s4/4; refuse s5/4 elsewhere why=held left by=s1/4,s2/4,s3/4,s4/4; refuse b; release s1/4 here; grant s5/4 here;
			shared s2..s5/4; refuse s6/4 elsewhere why=held left by=s2/4,s3/4,s4/4,s5/4; refuse c; release s2/4 here; grant s6/4 here;
			shared s3..s6/4; refuse s7/4 elsewhere why=held left by=s3/4,s4/4,s5/4,s6/4; refuse d; release s3/4 here; grant s7/4 here;
			release s4..s7/4 here; free`},
	{Name: "LimitIsKeptAtOnce", Needs: slots,
		Rule: "Of many simultaneous requests with a Limit exactly Limit are granted, with different slots.",
		play: "5 times; ask s1..s8/5 spread=5 & ask s9..s16/5 spread=5; won s1..s16/5; release s1..s16/5 here won; free"},
	{Name: "SmallestLimitCounts", Needs: slots,
		Rule: "If the holders of a key and the request have different limits, no owner is granted the key beyond the smallest of them; a reader without a Limit counts as one holder.",
		play: `grant s1/3; refuse s2/1; grant s3/5; refuse s4/2; grant r1; refuse s5/3 s6/5 r2; release s1/3; grant s7/5;
			refuse s8/3; grant r3 s9/5; refuse s10/5 r4`},
	{Name: "SlotIsTheSmallestThatIsFree", Needs: slots,
		Rule: "A holder's slot is the smallest number from 0 on that no other holder has, and so below its Limit.",
		play: each(rounds(4), "grant s#/4 spread slot=#") + `release s2/4 s1/4 here; grant s4/4 elsewhere slot=1;
			grant s5/4 elsewhere slot=2; release s0/4 s4..s5/4 s3/4 here; grant s6/4 slot=0; grant s7/8 slot=1`},
	{Name: "SlotIsKept", Needs: slots,
		Rule: "A holder keeps its slot while it holds the key: asking again and renewing do not change it, even after smaller ones became free.",
		play: each(rounds(3), "grant s#/3 spread slot=#") + `release s0/3 s1/3 here; grant s2/3 elsewhere slot=2; renew s2/3 here;
			grant s2/3 elsewhere queued slot=2; renew s2/3 here; shared s2/3; has s2/3 slot=2; grant s3/3 slot=0;
			grant s2/3 here slot=2`},
	{Name: "SlotOfADeadHolderComesBack", Needs: slots,
		Rule: "The slot of a vanished holder is free once its lease has ended.",
		play: "grant s1/2 slot=0; grant s2/2 brief slot=1; inherit s3/2 slot=1; renew s2/2 gone; release s2/2 gone"},
	{Name: "ReaderHasNoSlot", Needs: slots,
		Rule: "A reader without a Limit has slot 0 and takes it from no holder; Inspect shows each holder's Limit and Slot.",
		play: `grant r1 slot=0; grant s1/5 slot=0; grant r2 slot=0; grant s2/6 slot=1; queue? join s3/4; shared r1 s1/5 r2 s2/6;
			has r1 r2 limit=0 slot=0; has s1/5 limit=5 slot=0; has s2/6 limit=6 slot=1; queue? waits s3/4`},
	{Name: "LimitedQueueIsInOrder", Needs: slotsQueue, claims: true,
		Rule: "The queue for a key with a Limit is served in order: each release makes room for one, with its slot.",
		play: each(rounds(3), "grant s#/3 spread slot=#") + `await t1..t6/3 elsewhere;
			release s1/3 here; refuse t6/3 queued; enter t1/3; grant t1/3 here slot=1; refuse t2..t6/3 queued;
			release s0/3 here; refuse t6/3 queued; enter t2/3; grant t2/3 here slot=0; refuse t3..t6/3 queued;
			release s2/3 here; refuse t6/3 queued; enter t3/3; grant t3/3 here slot=2; refuse t4..t6/3 queued;
			release t2/3 here; refuse t6/3 queued; enter t4/3; grant t4/3 here slot=0; refuse t5..t6/3 queued;
			release t3/3 here; refuse t6/3 queued; enter t5/3; grant t5/3 here slot=2; refuse t6/3 queued;
			release t1/3 here; enter t6/3; grant t6/3 here slot=1; release t4..t6/3 here; free`},
	{Name: "LargerLimitLetsSeveralIn", Needs: slotsQueue,
		Rule: "When the holder with the smallest Limit releases, as many from the front of the queue are granted the key as the limits then allow, and get hints.",
		play: `grant s1/2 s2/5; await t1..t5/5; quiet t1..t5/5; release s1/2; enter t4..t1/5; shared s2/5 t1..t4/5;
			refuse t5/5 queued; release s2/5; enter t5/5`},
	{Name: "DeadHoldersLetAsManyIn", Needs: slotsQueue, timely: true,
		Rule: "When the leases of all holders of a key with a Limit expire, as many from the front of the queue are granted the key once the first of them asks, and get hints.",
		play: `grant s1..s5/5 brief; await t1..t6/5 spread; turn t1/5 in=ttl; enter t2..t5/5; refuse t6/5 queued;
			shared t1..t5/5`},
	{Name: "FirstInTheQueueKnowsWhenThereIsRoom", Needs: slotsQueue, timely: true,
		Rule: "The first in the queue for a key with a Limit learns when the first of the leases ends that makes room.",
		play: "grant s1/2; grant s2/2 brief; join s3/2 elsewhere wakes=ttl left=ttl; turn s3/2 here in=ttl; shared s1/2 s3/2"},
	{Name: "LimitOfOne", Needs: slots,
		Rule: "A Limit of 1 is one holder at a time.",
		play: "grant s1/1 slot=0; refuse s2/1 s3/9 r1 a; release s1/1; grant s2/1 slot=0"},
	{Name: "ConvertTakesASlot", Needs: slots,
		Rule: "A holder that converts with a Limit has slot 0, and others are granted the key until the Limit is reached.",
		play: `grant a; convert a limit=2 slot=0; convert a limit=2 slot=0; grant s1/2 slot=1; refuse s2/2; shared a s1/2;
			has a limit=2; grant a slot=0`},
}

// sharing returns r in Shared mode: limit holders in all, 0 for any number.
func sharing(r contend.Owner, limit int) contend.Owner {
	r.Mode, r.Limit = driver.Shared, limit
	return r
}

// reader returns the request of a fresh owner that shares the key with any number.
func (e *env) reader(key string) contend.Owner { return sharing(e.ask(key), 0) }

func sameOwner(r contend.Owner) func(driver.Holding) bool {
	return func(l driver.Holding) bool { return l.Holder.Owner == r.Owner && l.Holder.Label == r.Label }
}

// sharedBy fails unless exactly these hold their key, in any order, all Shared.
func (e *env) sharedBy(rs ...contend.Owner) driver.Info {
	e.Helper()
	info := e.inspect(rs[0].Key)
	if !info.Held || info.Leases != len(rs) || len(info.Holders) != len(rs) {
		e.Fatalf("%q has %d holders, %d in the list, want %d: %+v", info.Key, info.Leases, len(info.Holders), len(rs), info)
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

var sharedQueue = []Need{needShared, needQueue}

func writerKnowsTheLast(e *env) {
	rs := []contend.Owner{e.brief(e.reader("k")), e.reader("k"), e.brief(e.reader("k"))}
	for _, r := range rs {
		e.grant(e.d, r)
	}
	last := cmp.Or(e.left(rs[1]), e.long)
	w, d, soonest := e.ask("k"), e.open(), e.long/2
	if e.watch(d, w) == nil {
		soonest = 0 // it polls
	}
	res := e.join(d, w, 0)
	if res.RetryIn <= soonest || res.RetryIn > last || !plausible(res.Left, e.long/2) {
		e.Errorf("RetryIn is %v and Left %v, want those of the last that shares the key, which has %v", res.RetryIn, res.Left, last)
	}
	if a := e.renewed(d, queued(w)); a.RetryIn <= soonest || a.RetryIn > last {
		e.Errorf("RetryIn of a sign of life is %v, want that of the last, which has %v", a.RetryIn, last)
	}
}

var sharedHandoff = []Need{needShared, needHandoff}

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
// several nodes, some of which may hear of the Convert a moment later. Then it is refused
// although no lease is in its way, and asks again.
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

var (
	slots      = []Need{needShared, needSlots}
	slotsQueue = []Need{needShared, needSlots, needQueue}
)

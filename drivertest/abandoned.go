// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var abandonedCases = []Case{
	{Name: "ExpiryAbandons", Needs: marks, // promise: Lease.Abandoned
		Rule: "A lease that expires leaves the key abandoned for its next holder, and only for that one.",
		play: `2 times; grant a brief; expires; grant b marked; release b; grant c unmarked; release c; grant d@other unmarked;
			release d@other`},
	{Name: "UnfinishedAbandons", Needs: marks,
		Rule: "A Release as EndUnfinished leaves the key abandoned; one as EndFinished or EndUnused does not.",
		play: `grant a unmarked; release a unused; grant b unmarked; release b; grant c unmarked; release c unfinished;
			grant d marked; release d; grant e unmarked; release e unused; grant f unmarked; release f;
			grant g settled unmarked; release g settled unfinished; grant h marked; release h; grant i unmarked; release i`},
	{Name: "AbandonedOverTheQueue", Needs: marksQueue,
		Rule: "The first waiter that is granted the key of a vanished holder learns that it was abandoned, and no other does.",
		play: `grant a brief; ask b queued; refuse c d queued; turn b in=ttl marked; release b unfinished; turn c marked; release c;
			turn d unmarked`},
	{Name: "AbandonedIsRepeated", Needs: marks,
		Rule: "A holder that asks again gets the same answer whether the key was abandoned.",
		play: `grant z; release z unfinished; grant a marked; grant a queued marked; renew a; grant a marked; grant a queued marked;
			renew a; release a; grant b unmarked; grant b unmarked`},
	{Name: "UnusedPutsTheMarkBack", Needs: marks,
		Rule: "A holder of an abandoned key that releases it EndUnused leaves it abandoned; so does a holder that vanished or released it EndUnfinished; after one finished it is not.",
		play: `grant z; release z unfinished; grant a marked; release a unused; grant b marked; release b unused; grant c marked;
			release c unfinished; grant d brief marked; expires; grant e marked; release e; grant f unmarked; release f`},
	{Name: "UnclaimedKeyStaysAbandoned", Needs: marksQueue, timely: true,
		Rule: "An abandoned key that was handed to a waiter which never claimed it, or gave it up, is abandoned for the next; another key is not.",
		play: `grant a; join u; join d brief; join b; release a unfinished; release u unused; turn b in=3ttl marked;
			release d unused perhaps; release b; grant c unmarked; release c;
			grant a fresh; join u fresh; join d fresh brief; join b fresh; release a; release u unused; turn b in=3ttl clean;
			release d unused perhaps; release b; grant c fresh unmarked; release c`},
	{Name: "ReadersLeaveTheMark", Needs: marksShared,
		Rule: "Each reader of an abandoned key sees the mark, however it ends, and so does the writer after them, but no later holder.",
		play: `grant z; release z unfinished; grant r1 r2 r1 marked; release r1; grant r2 marked; release r2; grant r3 r4 r3 marked;
			release r3 unused; grant r4 marked; release r4 unused; grant r5 r6 r5 marked; release r5 unfinished; grant r6 marked;
			release r6 unfinished; grant a marked; release a; grant b unmarked; release b; grant r7 unmarked`},
	{Name: "QueuedReadersSeeTheMark", Needs: marksSharedQueue,
		Rule: "All readers that are granted the key together after a vanished writer see that it was abandoned.",
		play: `grant a; join r1 r2 w; release a unfinished; turn r1 r2 marked; release r1 r2; turn w marked; release w;
			grant b unmarked; release b`},
	{Name: "ReadersAbandonNothing", Needs: marksShared,
		Rule: "A reader whose lease expires, or that releases EndUnfinished, leaves no mark on the key.",
		play: `grant r1; release r1 unfinished; grant a unmarked; release a; grant r2; grant r3 brief; until holds=1;
			grant r4 brief unmarked; release r2; expires; grant b unmarked; release b`},
	{Name: "ConvertFinishes", Needs: marksShared,
		Rule: "A holder of an abandoned key that converts has finished: no holder after it sees the mark, and its own end, as a reader, leaves none.",
		play: `grant z; release z unfinished; grant a marked; convert a; grant r1 unmarked; release a exclusive unfinished; release r1;
			grant b unmarked; release b; grant c; convert c; release c exclusive unused; grant d unmarked; release d; slots? grant y;
			slots? release y unfinished; slots? grant e marked; slots? convert e limit=2; slots? release e exclusive unused;
			grant f unmarked; release f`},
	{Name: "LimitedHoldersAbandon", Needs: marksSlots,
		Rule: "A holder with a Limit that vanished leaves the key abandoned for the next holder only, though others still hold it.",
		play: `grant s1/3 unmarked; grant s2/3 brief unmarked; until holds=1; grant s3/3 marked; grant s4/3 unmarked;
			grant s3/3 marked; release s4/3 unfinished; grant r1 marked; release r1 s1/3 s3/3; grant a marked; release a;
			grant b unmarked; release b`},
}

var (
	marks            = []Need{needMarks}
	marksQueue       = []Need{needMarks, needQueue}
	marksShared      = []Need{needMarks, needShared}
	marksSharedQueue = []Need{needMarks, needShared, needQueue}
	marksSlots       = []Need{needMarks, needShared, needSlots}
)

func ending(r contend.Owner, end driver.End) contend.Owner {
	r.End = end
	return r
}

// abandonedRight reports whether a grant's Abandoned is right. Of several nodes, another majority may say so again.
func (e *env) abandonedRight(got, want bool) bool {
	return got == want || got && e.store.Ended != nil && !e.fake
}

// expires waits until a key is free: of several nodes that granted it one after
// another, the last may do so a moment longer than a majority.
func (e *env) expires(key string) {
	e.Helper()
	e.eventually(e.ttl, "the lease ends", func() bool {
		return !e.inspect(key).Held && (e.store.Ended == nil || e.store.Ended(key))
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var abandonedCases = []Case{
	{Name: "ExpiryAbandons", // promise: Lease.Abandoned
		Rule:  "A lease that expires leaves the key abandoned for its next holder, and only for that one.",
		Needs: marks, run: expiryAbandons},
	{Name: "UnfinishedAbandons",
		Rule:  "A Release as Unfinished leaves the key abandoned; one as Finished or Unused does not.",
		Needs: marks, run: unfinishedAbandons},
	{Name: "AbandonedOverTheQueue",
		Rule:  "The first waiter that is granted the key of a vanished holder learns that it was abandoned, and no other does.",
		Needs: marksQueue, run: abandonedOverTheQueue},
	{Name: "AbandonedIsRepeated",
		Rule:  "A holder that asks again gets the same answer whether the key was abandoned.",
		Needs: marks, run: abandonedRepeated},
	{Name: "UnusedPutsTheMarkBack",
		Rule:  "A holder of an abandoned key that releases it Unused leaves it abandoned; so does one that vanished or released it Unfinished; one that finished does not.",
		Needs: marks, run: unusedPutsBack},
	{Name: "UnclaimedKeyStaysAbandoned",
		Rule:  "An abandoned key that was handed to a waiter which never claimed it, or gave it up, is abandoned for the next; one that was not abandoned is not.",
		Needs: marksQueue, timely: true, run: unclaimedStaysAbandoned},
	{Name: "ReadersLeaveTheMark",
		Rule:  "Each reader of an abandoned key sees the mark, however it ends, and so does the writer after them, but nobody after that.",
		Needs: marksShared, run: readersLeaveTheMark},
	{Name: "QueuedReadersSeeTheMark",
		Rule:  "All readers that are granted the key together after a vanished writer see that it was abandoned.",
		Needs: marksSharedQueue, run: queuedReadersSeeTheMark},
	{Name: "ReadersAbandonNothing",
		Rule:  "A reader whose lease expires, or that releases Unfinished, leaves no mark on the key.",
		Needs: marksShared, run: readersAbandonNothing},
	{Name: "ConvertFinishes",
		Rule:  "A holder of an abandoned key that converts has finished: nobody after it sees the mark, and its own end, as a reader, leaves none.",
		Needs: marksShared, run: convertFinishes},
	{Name: "LimitedHoldersAbandon",
		Rule:  "A holder with a Limit that vanished leaves the key abandoned for the next holder only, though others still hold it.",
		Needs: marksSlots, run: limitedHoldersAbandon},
}

var (
	marks            = []Need{needMarks}
	marksQueue       = []Need{needMarks, needQueue}
	marksShared      = []Need{needMarks, needShared}
	marksSharedQueue = []Need{needMarks, needShared, needQueue}
	marksSlots       = []Need{needMarks, needShared, needSlots}
)

func isUnsupported(err error) bool { return errors.Is(err, driver.ErrUnsupported) }

func ending(r contend.Owner, end driver.End) contend.Owner {
	r.End = end
	return r
}

// abandonedRight reports whether a grant's Abandoned is right.
func (e *env) abandonedRight(got, want bool) bool {
	return got == want || got && !e.traits.AbandonedOnce && !e.fake
}

// grantMarked must be granted the key with this Abandoned.
func (e *env) grantMarked(abandoned bool, r contend.Owner) {
	e.Helper()
	if res := e.grant(e.d, r); !e.abandonedRight(res.Abandoned, abandoned) {
		e.Fatalf("Abandoned is %v, want %v: %+v", res.Abandoned, abandoned, res)
	}
}

// grantFinished is grantMarked for a holder that releases the key as Finished.
func (e *env) grantFinished(abandoned bool, key string) {
	e.Helper()
	r := e.ask(key)
	e.grantMarked(abandoned, r)
	e.release(e.d, r)
}

// abandon leaves a free key abandoned.
func (e *env) abandon(key string) {
	e.Helper()
	gone := e.ask(key)
	e.grant(e.d, gone)
	e.release(e.d, ending(gone, driver.Unfinished))
}

// expires waits until nobody holds a key: of several nodes that granted it one after
// another, the last may do so a moment longer than a majority.
func (e *env) expires(key string) {
	e.Helper()
	e.eventually(e.ttl, "the lease ends", func() bool {
		return !e.inspect(key).Held && (e.store.Ended == nil || e.store.Ended(key))
	})
}

func expiryAbandons(e *env) {
	for range 2 {
		e.grant(e.d, e.brief(e.ask("k")))
		e.expires("k")
		e.grantFinished(true, "k")
		e.grantFinished(false, "k")
	}
	e.grantFinished(false, "other")
}

func unfinishedAbandons(e *env) {
	for _, end := range []driver.End{driver.Unused, driver.Finished, driver.Unfinished, driver.Unused, driver.Finished} {
		r := e.ask("k")
		e.grantMarked(false, r)
		e.release(e.d, ending(r, end))
		if end == driver.Unfinished {
			e.grantFinished(true, "k")
		}
	}
	settled := e.ask("k")
	settled.Settled = true
	e.grantMarked(false, settled)
	e.release(e.d, ending(settled, driver.Unfinished))
	e.grantFinished(true, "k")
	e.grantFinished(false, "k")
}

func abandonedOverTheQueue(e *env) {
	gone, b, c, d := e.brief(e.ask("k")), e.ask("k"), e.ask("k"), e.ask("k")
	e.grant(e.d, gone)
	for i, r := range []contend.Owner{b, c, d} {
		if res := e.try(e.d, queued(r)); i > 0 && res.Granted {
			e.Fatalf("granted beside %s", b.Owner)
		}
	}
	if res := e.turn(e.d, b, e.ttl); !res.Abandoned {
		e.Errorf("after a holder that is gone: %+v, want Abandoned", res)
	}
	e.release(e.d, ending(b, driver.Unfinished))
	if res := e.turn(e.d, c, 0); !res.Abandoned {
		e.Errorf("after a holder that did not finish: %+v, want Abandoned", res)
	}
	e.release(e.d, c)
	if res := e.turn(e.d, d, 0); !e.abandonedRight(res.Abandoned, false) {
		e.Errorf("after a holder that finished: %+v", res)
	}
}

func abandonedRepeated(e *env) {
	e.abandon("k")
	a := e.ask("k")
	for range 2 {
		e.grantMarked(true, a)
		e.grantMarked(true, queued(a))
		e.renewed(e.d, a)
	}
	e.release(e.d, a)
	b := e.ask("k")
	for range 2 {
		e.grantMarked(false, b)
	}
}

func unusedPutsBack(e *env) {
	e.abandon("k")
	for _, end := range []driver.End{driver.Unused, driver.Unused, driver.Unfinished} {
		r := e.ask("k")
		e.grantMarked(true, r)
		e.release(e.d, ending(r, end))
	}
	e.grantMarked(true, e.brief(e.ask("k")))
	e.expires("k")
	e.grantFinished(true, "k")
	e.grantFinished(false, "k")
}

func unclaimedStaysAbandoned(e *env) {
	for _, end := range []driver.End{driver.Unfinished, driver.Finished} {
		gone, unused, dead, b := e.ask("k"), e.ask("k"), e.brief(e.ask("k")), e.ask("k")
		e.grant(e.d, gone)
		e.join(e.d, unused, 0)
		e.join(e.d, dead, 1)
		e.join(e.d, b, 2)
		e.release(e.d, ending(gone, end))
		e.release(e.d, ending(unused, driver.Unused))
		if res := e.turn(e.d, b, 3*e.ttl); res.Abandoned != (end == driver.Unfinished) {
			e.Errorf("after the end %d of the last that had the key, Abandoned is %v", end, res.Abandoned)
		}
		_ = contend.Release(e.ctx, e.d, ending(dead, driver.Unused)) // it may have kept its place
		e.release(e.d, b)
		e.grantFinished(false, "k")
	}
}

func readersLeaveTheMark(e *env) {
	e.abandon("k")
	for _, end := range []driver.End{driver.Finished, driver.Unused, driver.Unfinished} {
		a, b := e.reader("k"), e.reader("k")
		e.grantMarked(true, a)
		e.grantMarked(true, b)
		e.grantMarked(true, a) // asked again
		e.release(e.d, ending(a, end))
		e.grantMarked(true, b)
		e.release(e.d, ending(b, end))
	}
	e.grantFinished(true, "k")
	e.grantFinished(false, "k")
	r := e.reader("k")
	e.grantMarked(false, r)
}

func queuedReadersSeeTheMark(e *env) {
	gone, r1, r2, w := e.ask("k"), e.reader("k"), e.reader("k"), e.ask("k")
	e.grant(e.d, gone)
	e.join(e.d, r1, 0)
	e.join(e.d, r2, 1)
	e.join(e.d, w, 2)
	e.release(e.d, ending(gone, driver.Unfinished))
	for _, r := range []contend.Owner{r1, r2} {
		if res := e.turn(e.d, r, 0); !res.Abandoned {
			e.Errorf("a reader after a writer that did not finish: %+v, want Abandoned", res)
		}
	}
	e.releaseAll(r1, r2)
	if res := e.turn(e.d, w, 0); !res.Abandoned {
		e.Errorf("the writer after those readers: %+v, want Abandoned", res)
	}
	e.release(e.d, w)
	e.grantFinished(false, "k")
}

func readersAbandonNothing(e *env) {
	r := e.reader("k")
	e.grant(e.d, r)
	e.release(e.d, ending(r, driver.Unfinished))
	e.grantFinished(false, "k")
	a := e.reader("k")
	e.grant(e.d, a)
	e.grant(e.d, e.brief(e.reader("k")))
	e.eventually(e.ttl, "one of two readers is gone", func() bool { return e.inspect("k").Holds == 1 })
	e.grantMarked(false, e.brief(e.reader("k")))
	e.release(e.d, a)
	e.expires("k")
	e.grantFinished(false, "k")
}

func convertFinishes(e *env) {
	e.abandon("k")
	a := e.ask("k")
	e.grantMarked(true, a)
	e.grant(e.d, converting(a))
	r := e.reader("k")
	e.grantMarked(false, r)
	e.release(e.d, ending(a, driver.Unfinished))
	e.release(e.d, r)
	e.grantFinished(false, "k")

	b := e.ask("k")
	e.grant(e.d, b)
	e.grant(e.d, converting(b))
	e.release(e.d, ending(b, driver.Unused))
	e.grantFinished(false, "k")
	if !needSlots.Met(e.d) {
		return
	}
	e.abandon("k")
	c := e.ask("k")
	e.grantMarked(true, c)
	limited := converting(c)
	limited.Limit = 2
	e.grant(e.d, limited)
	e.release(e.d, ending(c, driver.Unused)) // it has no mark that could go back
	e.grantFinished(false, "k")
}

func limitedHoldersAbandon(e *env) {
	a, gone := e.slotted("k", 3), e.brief(e.slotted("k", 3))
	e.grantMarked(false, a)
	e.grantMarked(false, gone)
	e.eventually(e.ttl, "one of two holders is gone", func() bool { return e.inspect("k").Holds == 1 })
	b, c := e.slotted("k", 3), e.slotted("k", 3)
	e.grantMarked(true, b)
	e.grantMarked(false, c)
	e.grantMarked(true, b)
	e.release(e.d, ending(c, driver.Unfinished))
	r := e.reader("k")
	e.grantMarked(true, r)
	e.release(e.d, r)
	e.releaseAll(a, b)
	e.grantFinished(true, "k")
	e.grantFinished(false, "k")
}

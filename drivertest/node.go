// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// nodeCases and recordCases are for drivers that keep a node record
// (driver.Node); with others they are skipped.
var nodeCases = []Case{
	{Name: "NewNodeIsHeldBack",
		Rule: "A new store grants nothing until it is admitted.",
		run:  newNodeIsHeldBack},
	{Name: "RestartedNodeIsHeldBack",
		Rule: "A store whose process was replaced by one without data grants, keeps and prolongs nothing until it is admitted.",
		play: "node; grant a; refuse o elsewhere; queue? join b elsewhere=o; restart;" + isHeldBack},
	{Name: "FlushedNodeIsHeldBack",
		Rule: "A store that lost all its data grants, keeps and prolongs nothing until it is admitted.",
		play: "node; grant a; refuse o elsewhere; queue? join b elsewhere=o; flush;" + isHeldBack},
	{Name: "HeldBackNodeHandsNothingOn",
		Rule:  "A store whose process was replaced hands nothing off until it is admitted, neither at a Release nor when a lease expires.",
		Needs: queueing,
		play: `node; grant a@released; join b@released; reload; held a@released; waits b@released; release a@released;
			unheld a@released; heldback b@released; admit; turn b@released; grant c@ended brief; join d@ended; reload; held c@ended;
			waits d@ended; expires c@ended; heldback d@ended; admit; turn d@ended`},
	{Name: "HeldBackNodeProlongsNothing",
		Rule: "A store whose process was replaced prolongs no lease that it still has until it is admitted: a renewal is an error that does not say whether the owner still has it.",
		play: `node; grant a brief; reload; renew a unsure; has a perhaps left=ttl; noted; renew a unsure; has a perhaps left=ttl; noted;
			expires; renew a unsure; admit; renew a gone`},
}

// isHeldBack is what two clients find once the store forgot what a holds and b waits for.
const isHeldBack = `heldback a b here; heldback c; heldback d@unseen; renew a here unsure; renew e@unseen unsure;
	heldback a b elsewhere=o; heldback f elsewhere=o; heldback g@unseen elsewhere=o; renew a elsewhere=o unsure;
	renew h@unseen elsewhere=o unsure; noted; heldback a elsewhere=o; renew a elsewhere=o unsure;
	renew b queued elsewhere=o gone; release a b here quietly; free; admit; renew a here gone; refuse a here; grant i`

// heldBack fails unless the store refuses every kind of Try for the key, and
// gives nobody a place.
func (e *env) heldBack(d driver.Driver, r contend.Owner) {
	e.Helper()
	before := e.inspect(r.Key)
	for _, fence := range []uint64{0, 1, uint64(time.Now().UnixMicro() + 1000)} {
		r.Fence = fence
		restored := r
		restored.Restore = fence != 0
		for _, r := range []contend.Owner{r, queued(r), restored} {
			if res := e.refuse(d, r); res.Why != driver.NotVoting {
				e.Fatalf("Try with Fence %d: %+v, want NotVoting", fence, res)
			}
		}
	}
	if after := e.inspect(r.Key); after.Waiters != before.Waiters || after.Held != before.Held {
		e.Fatalf("a store that is held back has %+v after a Try, %+v before", after, before)
	}
}

// renewUnknown renews a lease, and must get an error other than ErrNotHeld.
func (e *env) renewUnknown(d driver.Driver, r contend.Owner) {
	e.Helper()
	if err := e.renew(d, r)[0].Err; err == nil || errors.Is(err, driver.ErrNotHeld) {
		e.Fatalf("Renew at a store that is held back: %v, want an error that is not ErrNotHeld", err)
	}
}

// releaseQuietly releases, and must get an answer.
func (e *env) releaseQuietly(d driver.Driver, r contend.Owner) {
	e.Helper()
	if err := contend.Release(e.ctx, d, r); err != nil && !errors.Is(err, driver.ErrNotHeld) {
		e.Fatalf("Release at a store that is held back: %v", err)
	}
}

func newNodeIsHeldBack(e *env) {
	e.node()
	e.store, e.opened = e.made(e.TB), nil
	e.d = e.open()
	e.heldBack(e.d, e.ask("k")) // before anybody read the record
	n := e.node()
	if rec := e.record(n); rec.Voting {
		e.Fatalf("Harness.New admitted the store, which the suite does: %+v", rec)
	}
	e.heldBack(e.open(), e.ask("k"))
	e.admitted(n, e.traits.MaxTTL)
	e.grant(e.d, e.ask("k"))
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
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

var recordCases = []Case{
	{Name: "AdmitComparesTheRecord",
		Rule: "Admit makes a store vote only with exactly the record with which it is held back: with any other it is ErrNotHeld and changes nothing.",
		run:  admitCompares},
	{Name: "RecordOfAnotherRun",
		Rule: "Admit with a record of the process before this one is ErrNotHeld and changes nothing.",
		run:  recordOfAnotherLife},
	{Name: "RecordsAreNew",
		Rule: "Each time that a store loses its record it is held back with a new one, which it shows to every client.",
		run:  recordsAreNew},
	{Name: "FencesRiseOverDataLoss",
		Rule:  "The fences of a store that lost its data are above its clock once it is admitted, and so above earlier proposals up to the clock.",
		Needs: fencing, run: fencesRiseOverForgetting},
	{Name: "TTLAboveTheRecord",
		Rule: "A TTL above the one that the store was admitted for is refused with TTLTooLong and that one; a renewal with it is an error and prolongs nothing.",
		play: `node; forget; admit for=half; refuse b why=toolong most=half; free; refuse b queued why=toolong most=half; free;
			grant a quarter; refuse b queued why=toolong; waits; renew a unsure; refuse a why=toolong; held a; has a left=quarter;
			renew a half; release a`},
	{Name: "ResultsNameTheRun",
		Rule: "Every answer to every client names the current run of the store: the same after a flush, another after a restart.",
		run:  resultsNameTheLife},
}

// recorded returns d if it keeps a node record, or nil.
func recorded(ctx context.Context, d driver.Driver) driver.Recorded {
	n, ok := d.(driver.Recorded)
	if !ok {
		return nil
	}
	if _, err := n.Record(ctx); errors.Is(err, driver.ErrUnsupported) {
		return nil
	}
	return n
}

// node returns the store's client when it keeps a node record, or skips the case.
func (e *env) node() driver.Recorded {
	e.Helper()
	n := recorded(e.ctx, e.d)
	if n == nil {
		e.Skipf("%s, so configured, keeps no node record (driver.Recorded)", e.traits.Engine)
	}
	return n
}

func (e *env) restart() func() { return e.wayToForget("Restart", e.store.Restart) }
func (e *env) reload() func()  { return e.wayToForget("Reload", e.store.Reload) }
func (e *env) flush() func()   { return e.wayToForget("Flush", e.store.Flush) }

// anyWay is Restart or Flush.
func (e *env) anyWay() func() {
	if e.store.Restart != nil {
		return e.restart()
	}
	return e.flush()
}

// wayToForget returns f, after which every client is connected again.
func (e *env) wayToForget(name string, f func()) func() {
	e.Helper()
	e.node()
	if f == nil {
		e.Skipf("the harness cannot do this to the store (Store.%s is nil)", name)
	}
	return func() {
		e.Helper()
		f()
		for _, d := range e.opened {
			e.eventually(0, "the store answers again", func() bool {
				_, err := d.Inspect(e.ctx, "k")
				return err == nil
			})
		}
	}
}

func (e *env) record(n driver.Recorded) driver.Record {
	e.Helper()
	rec, err := n.Record(e.ctx)
	if err != nil {
		e.Fatalf("Record: %v", err)
	}
	return rec
}

// waits returns the record of a store that is held back.
func (e *env) waits(n driver.Recorded) driver.Record {
	e.Helper()
	rec := e.record(n)
	if rec.Voting || rec.Text == "" || rec.Node == "" {
		e.Fatalf("the record is %+v, want one that waits", rec)
	}
	return rec
}

// admitted admits a store, as if everything that it may have lost had expired. It may
// vote already.
func (e *env) admitted(n driver.Recorded, maxTTL time.Duration) {
	e.Helper()
	rec := e.record(n)
	if rec.Voting {
		return
	}
	if err := n.Admit(e.ctx, rec, maxTTL); err != nil {
		e.Fatalf("Admit: %v", err)
	}
	if now := e.record(n); !now.Voting || now.MaxTTL != maxTTL || now.Node != rec.Node {
		e.Fatalf("the record is %+v after Admit for %v", now, maxTTL)
	}
}

// notAdmitted calls Admit with a record, which must change nothing.
func (e *env) notAdmitted(n driver.Recorded, rec driver.Record) {
	e.Helper()
	before := e.record(n)
	if err := n.Admit(e.ctx, rec, e.traits.MaxTTL); !errors.Is(err, driver.ErrNotHeld) {
		e.Fatalf("Admit with %q: %v, want ErrNotHeld; the record is %q", rec.Text, err, before.Text)
	}
	if now := e.record(n); now != before {
		e.Fatalf("the record was %+v, is %+v after an Admit that was refused", before, now)
	}
}

func admitCompares(e *env) {
	flush, n := e.flush(), e.node()
	voting := e.record(n)
	e.notAdmitted(n, voting)
	e.notAdmitted(n, driver.Record{})
	flush()
	stale := e.waits(n)
	e.notAdmitted(n, voting)
	flush()
	if err := n.Admit(e.ctx, stale, e.traits.MaxTTL); !errors.Is(err, driver.ErrNotHeld) { // there is none
		e.Fatalf("Admit without a record: %v, want ErrNotHeld", err)
	}
	e.notAdmitted(n, stale)
	rec := e.waits(n)
	for _, text := range []string{"", rec.Text + " ", rec.Text[:len(rec.Text)-1], stale.Text} {
		wrong := rec
		wrong.Text = text
		e.notAdmitted(n, wrong)
	}
	e.heldBack(e.d, e.ask("k"))
	e.admitted(n, e.traits.MaxTTL)
	e.notAdmitted(n, rec) // once
	e.grant(e.d, e.ask("k"))
}

func recordOfAnotherLife(e *env) {
	restart, n := e.restart(), e.node()
	voting := e.record(n)
	restart()
	first := e.waits(n)
	e.notAdmitted(n, voting)
	restart()
	if err := n.Admit(e.ctx, first, e.traits.MaxTTL); !errors.Is(err, driver.ErrNotHeld) {
		e.Fatalf("Admit without a record: %v, want ErrNotHeld", err)
	}
	e.notAdmitted(n, first)
	e.heldBack(e.d, e.ask("k"))
	if e.store.Reload != nil {
		waits := e.waits(n)
		e.reload()() // it has the record of another run
		if err := n.Admit(e.ctx, waits, e.traits.MaxTTL); !errors.Is(err, driver.ErrNotHeld) {
			e.Fatalf("Admit with a record of another run, which the store has: %v, want ErrNotHeld", err)
		}
		e.heldBack(e.d, e.ask("k"))
	}
	e.admitted(n, e.traits.MaxTTL)
	e.grant(e.d, e.ask("k"))
}

func recordsAreNew(e *env) {
	flush, n := e.flush(), e.node()
	ways := []func(){flush, flush, flush}
	if e.store.Restart != nil {
		ways = append(ways, e.restart(), e.restart())
	}
	if e.store.Reload != nil {
		ways = append(ways, e.reload(), e.reload())
	}
	seen := map[string]bool{e.record(n).Text: true}
	for _, forget := range ways {
		forget()
		rec := e.waits(n)
		if seen[rec.Text] {
			e.Fatalf("the store waits with the earlier record %q", rec.Text)
		}
		seen[rec.Text] = true
		for _, d := range []driver.Driver{e.d, e.open()} {
			if again := e.waits(recorded(e.ctx, d)); again != rec {
				e.Fatalf("the record is %+v to one, %+v to another", rec, again)
			}
		}
	}
}

func fencesRiseOverForgetting(e *env) {
	forget, n := e.anyWay(), e.node()
	newest := e.newest("k") // by the store's clock
	start := time.Now()
	passes := func(fence uint64) {
		e.Helper()
		e.eventually(time.Minute, "the store's clock has passed a fence", func() bool {
			return newest+uint64(time.Since(start).Microseconds()) > fence
		})
	}
	fence := newest
	if needNode.Met(e.d) {
		fence += 1000
		e.grantAndRelease(propose(e.ask("k"), fence))
		passes(fence)
		forget()
		e.admitted(n, e.traits.MaxTTL)
		for _, key := range []string{"k", "unseen"} {
			e.refuseFence(propose(e.ask(key), fence), fence)
		}
		res := e.refuse(e.d, propose(e.ask("k"), 1))
		fence = res.Fence + 1
		e.grantExactly(propose(e.ask("k"), fence), fence)
	}
	passes(fence)
	forget()
	e.admitted(n, e.traits.MaxTTL)
	e.rises(fence, e.grant(e.d, e.ask("k")))
}

func resultsNameTheLife(e *env) {
	restart, n := e.restart(), e.node()
	a := e.ask("k")
	life := e.grant(e.d, a).Node
	same := func() {
		e.Helper()
		for _, d := range []driver.Driver{e.d, e.open()} {
			if res := e.try(d, e.ask("k")); res.Node != life || e.record(n).Node != life {
				e.Fatalf("the store's run is %q, %q and %q (%+v)", life, res.Node, e.record(n).Node, res)
			}
		}
	}
	same()
	if life == "" {
		e.Fatal("a grant does not name the store's run")
	}
	if e.store.Flush != nil {
		e.flush()()
		same() // held back
	}
	restart()
	before := life
	if life = e.try(e.d, e.ask("k")).Node; life == "" || life == before {
		e.Fatalf("the store's run was %q, is %q after a restart", before, life)
	}
	same()
	e.admitted(n, e.traits.MaxTTL)
	same()
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// nodeCases are for drivers that keep a node record (voting.Node); with others they are skipped.
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
	{Name: "HeldBackNodeHandsNothingOn", Needs: queueing,
		Rule: "A store whose process was replaced hands nothing off until it is admitted, neither at a Release nor when a lease expires.",
		play: `node; grant a@released; join b@released; reload; held a@released; waits b@released; release a@released;
			unheld a@released; heldback b@released; admit; turn b@released; grant c@ended brief; join d@ended; reload; held c@ended;
			waits d@ended; expires c@ended; heldback d@ended; admit; turn d@ended`},
	{Name: "HeldBackNodeProlongsNothing",
		Rule: "A store whose process was replaced prolongs no lease that it still has until it is admitted: a renewal is an error that does not say whether the owner still has it.",
		play: `node; grant a brief; reload; renew a unsure; has a perhaps left=ttl; record x waits; renew a unsure; has a perhaps left=ttl; record x waits;
			expires; renew a unsure; admit; renew a gone`},
	{Name: "AdmitComparesTheRecord",
		Rule: "Admit makes a store vote only with exactly the record with which it is held back: with any other it is ErrNotHeld and changes nothing.",
		play: "node; record v; unadmitted v z; flush; record s waits; unadmitted v; flush; unadmitted s unread; unadmitted s; record w waits;" +
			each([]string{"", "long", "short", "s"}, "unadmitted w text=#") + "heldback a; admit; unadmitted w; grant a"},
	{Name: "RecordOfAnotherRun",
		Rule: "Admit with a record of the process before this one is ErrNotHeld and changes nothing.",
		play: `node; record v; restart; record s waits; unadmitted v; restart; unadmitted s unread; unadmitted s; heldback a;
			reload? record w waits; reload? reload; reload? unadmitted w unread; reload? heldback a; admit; grant a`},
	{Name: "RecordsAreNew",
		Rule: "Each time that a store loses its record it is held back with a new one, which it shows to every client.",
		play: "node; record v;" + each(rounds(3), "flush; record r waits new") +
			each([]string{"restart", "restart", "reload", "reload"}, "#? #; #? record r waits new")},
	{Name: "FencesRiseOverDataLoss", Needs: fencing,
		Rule: "The fences of a store that lost its data are above its clock once it is admitted, and so above earlier proposals up to the clock.",
		play: `node; grant n; release n; node? grant p at=n+1000; node? release p; node? passes p; node? forget; node? admit;
			node? refuse q at=p why=low least=p; node? refuse q@unseen at=p why=low least=p; node? refuse q at=1 names=x;
			node? exact n fresh at=x+1; passes n; forget; admit; grant z rises`},
	{Name: "TTLAboveTheRecord",
		Rule: "A TTL above that of the store's admission is refused with TTLTooLong and that TTL; a renewal with it is an error and prolongs nothing.",
		play: `node; forget; admit for=half; refuse b why=toolong most=half; free; refuse b queued why=toolong most=half; free;
			grant a quarter; refuse b queued why=toolong; waits; renew a unsure; refuse a why=toolong; held a; has a left=quarter;
			renew a half; release a`},
	{Name: "ResultsNameTheRun",
		Rule: "Every answer to every client names the current run of the store: the same after a flush, another after a restart.",
		play: `node; run a b; run b elsewhere; flush? flush; run a b; run b elsewhere; restart; run b new; run b elsewhere;
			admit; run b; run b elsewhere`},
}

// isHeldBack is what two clients find once the store forgot what a holds and b waits for.
const isHeldBack = `heldback a b here; heldback c; heldback d@unseen; renew a here unsure; renew e@unseen unsure;
	heldback a b elsewhere=o; heldback f elsewhere=o; heldback g@unseen elsewhere=o; renew a elsewhere=o unsure;
	renew h@unseen elsewhere=o unsure; record x waits; heldback a elsewhere=o; renew a elsewhere=o unsure;
	renew b queued elsewhere=o gone; release a b here quietly; free; admit; renew a here gone; refuse a here; grant i`

// heldBack fails unless the store refuses every kind of Try for the key, and
// gives no owner a place.
func (e *env) heldBack(d driver.Driver, r contend.Owner) {
	e.Helper()
	before := e.inspect(r.Key)
	for _, fence := range []uint64{0, 1, uint64(time.Now().UnixMicro() + 1000)} {
		r.Fence = fence
		restored := r
		restored.Restore = fence != 0
		for _, r := range []contend.Owner{r, queued(r), restored} {
			if res := e.refuse(d, r); res.Why != voting.NotVoting {
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
	e.heldBack(e.d, e.ask("k")) // before any client read the record
	n := e.node()
	if rec := e.record(n); rec.Voting {
		e.Fatalf("Harness.New admitted the store, which the suite does: %+v", rec)
	}
	e.heldBack(e.open(), e.ask("k"))
	e.admitted(n, e.traits.MaxTTL)
	e.grant(e.d, e.ask("k"))
}

// recorded returns d if it keeps a node record, or nil.
func recorded(ctx context.Context, d driver.Driver) voting.Recorded {
	n, ok := d.(voting.Recorded)
	if !ok {
		return nil
	}
	if _, err := n.Record(ctx); errors.Is(err, driver.ErrUnsupported) {
		return nil
	}
	return n
}

// node returns the store's client when it keeps a node record, or skips the case.
func (e *env) node() voting.Recorded {
	e.Helper()
	n := recorded(e.ctx, e.d)
	if n == nil {
		e.Skipf("%s, so configured, keeps no node record (voting.Recorded)", e.traits.Engine)
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

func (e *env) record(n voting.Recorded) voting.Record {
	e.Helper()
	rec, err := n.Record(e.ctx)
	if err != nil {
		e.Fatalf("Record: %v", err)
	}
	return rec
}

// noted notes the record of the store: with "waits" it must be held back, to every client; with "new", with another record than ever.
func (p *player) noted(s step, name string) {
	p.Helper()
	rec := p.record(p.node())
	_, waits := s.says["waits"]
	if again := p.record(recorded(p.ctx, p.open())); again != rec || waits && (rec.Voting || rec.Text == "" || rec.Run == "") {
		p.Fatalf("the record is %+v, and %+v to another client, want waits: %v", rec, again, waits)
	}
	if _, fresh := s.says["new"]; fresh && p.seen[rec.Text] {
		p.Fatalf("the store waits with the earlier record %q", rec.Text)
	}
	p.records[name], p.seen[rec.Text] = rec, true
}

// unadmitted admits the store with a noted record, which must be refused and change nothing. An "unread" store has no record yet.
func (p *player) unadmitted(s step, name string) {
	p.Helper()
	n, rec := p.node(), p.records[name]
	switch text, other := s.says["text"]; {
	case text == "long":
		rec.Text += " "
	case text == "short":
		rec.Text = rec.Text[:len(rec.Text)-1]
	case other:
		rec.Text = p.records[text].Text
	}
	var before voting.Record
	_, unread := s.says["unread"]
	if !unread {
		before = p.record(n)
	}
	if err := n.Admit(p.ctx, rec, p.traits.MaxTTL); !errors.Is(err, driver.ErrNotHeld) {
		p.Fatalf("Admit with %q: %v, want ErrNotHeld; the record is %q", rec.Text, err, before.Text)
	}
	if now := p.record(n); !unread && now != before {
		p.Fatalf("the record was %+v, is %+v after an Admit that was refused", before, now)
	}
}

// runs asks, whatever comes of it: the answer names the store's run, which is the one before unless it is "new".
func (p *player) runs(s step, name string, r contend.Owner) {
	p.Helper()
	res, rec := p.try(p.client(name), r), p.record(p.node())
	if _, fresh := s.says["new"]; p.run == "" || fresh && res.Run != p.run {
		p.run = res.Run
	} else if fresh {
		p.run = ""
	}
	if p.run == "" || res.Run != p.run || rec.Run != p.run {
		p.Fatalf("the store's run is %q, and %q to its record, want %q or, if that is new, another: %+v", res.Run, rec.Run, p.run, res)
	}
}

// admitted admits a store, as if everything that it may have lost had expired. It may
// vote already.
func (e *env) admitted(n voting.Recorded, maxTTL time.Duration) {
	e.Helper()
	rec := e.record(n)
	if rec.Voting {
		return
	}
	if err := n.Admit(e.ctx, rec, maxTTL); err != nil {
		e.Fatalf("Admit: %v", err)
	}
	if now := e.record(n); !now.Voting || now.MaxTTL != maxTTL || now.Run != rec.Run {
		e.Fatalf("the record is %+v after Admit for %v", now, maxTTL)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var tellCases = []Case{
	{Name: "BrokenLeaseIsTold", Needs: []Need{needTeller},
		Rule: "A Teller reports a lease that was renewed once and that another client released in its owner's name: with its owner, its label and its fence.",
		play: each([]string{"k", "odd"}, "hears a@#; grant a@#; renew a@#; release a@# here; reported a@#; renew a@# gone")},
	{Name: "OnlyEndedLeasesAreTold", Needs: []Need{needTeller},
		Rule: "A Teller reports neither what its own client released or never had, nor a lease that stands.",
		play: `hears a; grant a; release a; grant b@stands elsewhere=a; refuse c@stands elsewhere=a; release c@stands here gone;
			renew b@stands; grant d@others; release d@others; grant e@broken elsewhere=a; renew e@broken; release e@broken here;
			reported e@broken; renew b@stands`},
	{Name: "JoinIsTold", Needs: []Need{needTellsWanted},
		Rule: "A holder whose Renew has Wanted is told when somebody joins the queue for its key, and again when somebody joins after that one left.",
		play: each([]string{"k", "odd"}, `grant a@#; asks a@#; join b@# elsewhere; told a@#; release b@#; join c@# elsewhere=b@#; told a@#;
			release a@#; turn c@# in=ttl; asks c@#; join d@#; told c@#; release c@#; turn d@# in=ttl; release d@#`)},
	{Name: "JoinIsToldOnce", Needs: []Need{needTellsWanted, needHandoff},
		Rule: "An owner that asks again, gives a sign of life, or is refused without Queue is not told of: only a new place is.",
		play: `grant a elsewhere; asks a; grant m@marker elsewhere=a; asks m@marker; refuse b; join w; told a; join w; renew w queued;
			refuse c; join p@marker; told m@marker; single a`},
	{Name: "JoinIsToldToSharers", Needs: []Need{needTellsWanted, needShared},
		Rule: "Each reader that asked is told when a waiter joins, as is a holder that converted since it asked.",
		play: `grant a; asks a; convert a; beside r1; beside r2 elsewhere; asks r2; beside r3; asks r3; join w elsewhere; told a r2 r3;
			release w here; release r2; join b elsewhere; told a r3`},
	{Name: "JoinIsToldToSlots", Needs: []Need{needTellsWanted, needSlots},
		Rule: "Each holder of a slot that asked is told when a waiter joins.",
		play: `grant s0/3 slot=0; asks s0/3; grant s1/3 elsewhere slot=1; asks s1/3; grant s2/3 slot=2; asks s2/3;
			join s3/3 elsewhere; told s0..s2/3`},
	{Name: "JoinIsToldToWhoAsks", Needs: []Need{needTellsWanted},
		Rule: "A holder is not told of a join if it released the key, renewed without Wanted since, or holds another key.",
		play: `grant a elsewhere; grant c@c elsewhere=a; grant o@other elsewhere=a; asks a c@c o@other; release a;
			grant b elsewhere=a; renew c@c; grant m@marker elsewhere=a; asks m@marker; join d; join e@c; join p@marker; told m@marker;
			untold a c@c o@other`},
	{Name: "KeeperIsNamed", Needs: []Need{needTellsWanted, needEnters},
		Rule: "A refusal says Keeps while a holder stands that asked with Keeps last; it is told of waiters that join as others are.",
		play: `grant a; refuse b elsewhere unkept; asks a; refuse c elsewhere unkept; release a; grant d; asks d keeping;
			refuse e elsewhere keeps; join f elsewhere; told d; release d; turn f in=long; refuse g elsewhere unkept; release f`},
	{Name: "JoinRacesWithAsking", Needs: []Need{needTellsWanted},
		Rule: "Somebody joins while the holder's Renew asks: either the answer to that says Wanted, or the holder is told.",
		play: "50 times; grant a; asks a & ask w queued elsewhere=1; told a; release w; release a"},
	{Name: "HandoverIsTold", Needs: []Need{needEnters}, claims: true,
		Rule: "A hint tells the lease that a place got: its fence is above that of the refusal, and it began after that on the store's clock.",
		play: "grant z; release z;" + each([]string{"k", "odd"}, `
			grant a@# fresh above=z names=z; hand b@# fresh elsewhere from=a@# above=z names=z unmarked;
			grant b@# queued is=z handed; release b@#; grant a@# fresh above=z names=z;
			hand b@# fresh elsewhere from=a@# unfinished above=z names=z marked;
			grant b@# queued fences=3 got=3 row=3/a@# names=z; release b@#`)},
	{Name: "HandoverIsNotRepeated", Needs: []Need{needEnters}, claims: true,
		Rule: "No hint tells of what was handed over before the Watch, nor to others.",
		play: `grant a; hand b elsewhere from=a; hear c elsewhere=b entering; unhanded c; grant b queued; join c entering; release b;
			turn c entering in=long`},
	{Name: "EnteredLeaseIsClaimed", Needs: []Need{needEnters}, timely: true, claims: true,
		Rule: "A Renew with Entered makes a lease that was handed over one like others: it lasts as long, and a Try by its owner returns it.",
		play: `grant a; hand b elsewhere from=a; renew b; dally b; renew b; held b; has b same shown; grant b same claimed;
			release b`},
	{Name: "EnteredLeaseIsReleased",
		Rule:  "A lease that was handed over can be released without a claim: the next has the key, and learns whether it was abandoned.",
		Needs: []Need{needEnters}, claims: true, play: released("") + released("renew b;")},
	{Name: "EnteredLeaseConverts", Needs: []Need{needEnters, needShared}, claims: true,
		Rule: "A lease that was handed over can be converted by an owner that knows its fence.",
		play: `grant a; hand b elsewhere from=a; convert b at=b; beside r1; release b; release r1;
			grant a fresh; hand b fresh elsewhere from=a; refuse b converting; release b`},
	{Name: "EnteredLeaseAbandons", Needs: []Need{needEnters, needMarks}, timely: true,
		Rule: "A waiter that may have entered, and neither claimed the key nor released it, leaves it abandoned, and its Release after the end finds nothing.",
		play: "grant a; hand b elsewhere from=a; join c; dally b; turn c in=long marked; release b gone; release c; free"},
}

var needTeller = Need{"driver.Teller", func(d driver.Driver) bool { _, ok := d.(driver.Teller); return ok }}

// report is what a Teller reports.
type report struct {
	id    driver.ID
	fence uint64
}

// tellers are verbs of a client that reports leases that have ended.
var tellers = map[string]func(p *player, s step, name string, r contend.Owner){
	"hears": func(p *player, _ step, name string, _ contend.Owner) { // on a client of its own
		d, heard := p.open(), make(chan report, 16)
		d.(driver.Teller).Tell(func(id driver.ID, fence uint64) { heard <- report{id, fence} })
		p.clients[name], p.reports[d] = d, heard
	},
	"reported": func(p *player, s step, name string, r contend.Owner) { // next, to the client of that owner
		got := comes(p.env, p.reports[p.client(name)], p.slack, s.text+": nothing was reported")
		if want := (report{r.Claim().ID(), p.fences[name]}); got != want {
			p.Fatalf("reported %+v, want %+v", got, want)
		}
	},
}

var needTellsWanted = need("TellsWanted", func(t driver.Traits) bool { return t.Tells.Has(driver.TellsWanted) })

// news is what a holder that asks was told.
type news struct {
	n    atomic.Int64
	came chan struct{} // has room for one
}

func newNews() *news { return &news{came: make(chan struct{}, 1)} }

func (n *news) tell() {
	n.n.Add(1)
	select {
	case n.came <- struct{}{}:
	default:
	}
}

// asks has r's owner, that holds its key, ask with a Renew.
func (e *env) asks(d driver.Driver, r contend.Owner) *news {
	e.Helper()
	told := newNews()
	r.Wanted = told.tell
	if e.renewed(d, r).Wanted {
		e.Errorf("Renew of %q: Wanted, but no owner waits", r.Key)
	}
	if told.n.Load() > 0 {
		e.Errorf("the holder of %q was told, but no owner waits", r.Key)
	}
	return told
}

// told waits until each of them is told.
func (e *env) told(all ...*news) {
	e.Helper()
	for i, told := range all { // nothing else would tell it, however long that takes
		comes(e, told.came, time.Minute, fmt.Sprintf("holder %d was not told", i))
	}
}

var needEnters = need("TellsHandover", func(t driver.Traits) bool { return t.Tells.Has(driver.TellsHandover) })

// hand has d's owner b handed the key by a of another client, and returns what the hint says.
func (e *env) hand(d, from driver.Driver, a, b contend.Owner) driver.Handover {
	e.Helper()
	ch := e.hints(d, b)
	refused := e.join(d, b, 0)
	if refused.At <= 0 {
		e.Fatalf("the refusal says no time: %+v", refused)
	}
	e.release(from, a)
	to := e.hinted(ch).Handover
	if to.Fence <= refused.Fence || to.At < refused.At || to.TTL <= 0 {
		e.Fatalf("after the refusal %+v the hint says %+v", refused, to)
	}
	return to
}

func entering(r contend.Owner) contend.Owner {
	r.Enters, r.Entered = true, true
	return r
}

// released is a lease that was handed over, and released in each way, perhaps once it was claimed.
func released(claim string) (trace string) {
	for _, end := range []string{" unmarked", "unfinished marked", "unused unmarked"} {
		end, mark, _ := strings.Cut(end, " ")
		trace += "grant a fresh; hand b fresh elsewhere from=a; " + claim + "join c fresh; release b " + end + "; turn c in=long above=b " + mark + "; release c;"
	}
	return trace
}

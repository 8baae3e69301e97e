// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"strings"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var needEnters = Need{"Enters", func(d driver.Driver) bool { _, ok := d.(driver.Hander); return ok && d.Traits().Enters }}

var enterCases = []Case{
	{Name: "HandoverIsTold",
		Rule:  "A Hander tells, with the hint, the lease that a place got: its fence is above that of the refusal, and it began after that on the store's clock.",
		Needs: []Need{needEnters}, claims: true,
		play: "grant z; release z;" + each([]string{"k", "odd"}, `
			grant a@# fresh above=z names=z; hand b@# fresh elsewhere from=a@# above=z names=z unmarked;
			grant b@# queued is=z handed; release b@#; grant a@# fresh above=z names=z;
			hand b@# fresh elsewhere from=a@# unfinished above=z names=z marked;
			grant b@# queued fences=3 got=3 least=z+3 names=z; release b@#`)},
	{Name: "HandoverIsNotRepeated",
		Rule:  "A Hander tells nothing that was handed over before the Watch, nor to others.",
		Needs: []Need{needEnters}, claims: true,
		play: `grant a; hand b elsewhere from=a; hear c elsewhere=b entering; unhanded c; grant b queued; join c entering; release b;
			turn c entering in=long`},
	{Name: "EnteredLeaseIsClaimed",
		Rule:  "A Renew with Entered makes a lease that was handed over one like others: it lasts as long, and a Try by its owner returns it.",
		Needs: []Need{needEnters}, timely: true, claims: true,
		play: `grant a; hand b elsewhere from=a; renew b; dally b; renew b; held b; has b same shown; grant b same claimed;
			release b`},
	{Name: "EnteredLeaseIsReleased",
		Rule:  "A lease that was handed over can be released without a claim: the next has the key, and learns whether it was abandoned.",
		Needs: []Need{needEnters}, claims: true, play: released("") + released("renew b;")},
	{Name: "EnteredLeaseConverts",
		Rule:  "A lease that was handed over can be converted by who knows its fence.",
		Needs: []Need{needEnters, needShared}, claims: true,
		play: `grant a; hand b elsewhere from=a; convert b at=b; beside r1; release b; release r1;
			grant a fresh; hand b fresh elsewhere from=a; refuse b converting; release b`},
	{Name: "EnteredLeaseAbandons",
		Rule:  "Who may have entered, and neither claimed the key nor released it, leaves it abandoned, and its Release after the end finds nothing.",
		Needs: []Need{needEnters, needMarks}, timely: true,
		play: "grant a; hand b elsewhere from=a; join c; dally b; turn c in=long marked; release b gone; release c; free"},
}

// hand has d's owner b handed the key by a of another client, and returns what the hint says.
func (e *env) hand(d, from driver.Driver, a, b contend.Owner) driver.Handover {
	e.Helper()
	ch := e.hints(d, b)
	refused := e.join(d, b, 0)
	if refused.At <= 0 {
		e.Fatalf("the refusal says no time: %+v", refused)
	}
	e.release(from, a)
	e.hinted(ch)
	to, ok := d.(driver.Hander).Handed(b.Claim())
	if !ok || to.Fence <= refused.Fence || to.At < refused.At || to.TTL <= 0 {
		e.Fatalf("after the refusal %+v the hint says %+v, %v", refused, to, ok)
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

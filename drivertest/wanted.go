// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var needTellsWanted = need("TellsWanted", func(t driver.Traits) bool { return t.TellsWanted })

var wantedCases = []Case{
	{Name: "JoinIsTold",
		Rule:  "A holder whose Renew has Wanted is told when somebody joins the queue for its key, and again when somebody joins after that one left.",
		Needs: []Need{needTellsWanted},
		play: each([]string{"k", "odd"}, `grant a@#; asks a@#; join b@# elsewhere; told a@#; release b@#; join c@# elsewhere=b@#; told a@#;
			release a@#; turn c@# in=ttl; asks c@#; join d@#; told c@#; release c@#; turn d@# in=ttl; release d@#`)},
	{Name: "JoinIsToldOnce",
		Rule:  "Who asks again, gives a sign of life, or is refused without Queue is not told of: only a new place is.",
		Needs: []Need{needTellsWanted, needHandoff},
		play: `grant a elsewhere; asks a; grant m@marker elsewhere=a; asks m@marker; refuse b; join w; told a; join w; renew w queued;
			refuse c; join p@marker; told m@marker; single a`},
	{Name: "JoinIsToldToSharers",
		Rule:  "Each of those who share the key and asked is told when somebody joins, as is one that converted since it asked.",
		Needs: []Need{needTellsWanted, needShared},
		play: `grant a; asks a; convert a; beside r1; beside r2 elsewhere; asks r2; beside r3; asks r3; join w elsewhere; told a r2 r3;
			release w here; release r2; join b elsewhere; told a r3`},
	{Name: "JoinIsToldToSlots",
		Rule:  "Each of those who hold a slot and asked is told when somebody joins.",
		Needs: []Need{needTellsWanted, needSlots},
		play: `grant s0/3 slot=0; asks s0/3; grant s1/3 elsewhere slot=1; asks s1/3; grant s2/3 slot=2; asks s2/3;
			join s3/3 elsewhere; told s0..s2/3`},
	{Name: "JoinIsToldToWhoAsks",
		Rule:  "Nobody is told of a join who released the key, who renewed without Wanted since, or who holds another key.",
		Needs: []Need{needTellsWanted},
		play: `grant a elsewhere; grant c@c elsewhere=a; grant o@other elsewhere=a; asks a c@c o@other; release a;
			grant b elsewhere=a; renew c@c; grant m@marker elsewhere=a; asks m@marker; join d; join e@c; join p@marker; told m@marker;
			untold a c@c o@other`},
	{Name: "KeeperIsNamed",
		Rule:  "A refusal says Keeps while a holder stands that asked with Keeps last; who joins is told to it as to others.",
		Needs: []Need{needTellsWanted, needEnters},
		play: `grant a; refuse b elsewhere unkept; asks a; refuse c elsewhere unkept; release a; grant d; asks d keeping;
			refuse e elsewhere keeps; join f elsewhere; told d; release d; turn f in=long; refuse g elsewhere unkept; release f`},
	{Name: "JoinRacesWithAsking",
		Rule:  "Somebody joins while the holder's Renew asks: either the answer to that says Wanted, or the holder is told.",
		Needs: []Need{needTellsWanted}, run: joinRacesWithAsking},
}

// news is what a holder that asks was told.
type news struct {
	n    atomic.Int64
	came chan struct{} // has room for one
}

// asks has r's owner, that holds its key, ask with a Renew.
func (e *env) asks(d driver.Driver, r contend.Owner) *news {
	e.Helper()
	told := &news{came: make(chan struct{}, 1)}
	r.Wanted = func() {
		told.n.Add(1)
		select {
		case told.came <- struct{}{}:
		default:
		}
	}
	if e.renewed(d, r).Wanted {
		e.Errorf("Renew of %q: Wanted, but nobody waits", r.Key)
	}
	if told.n.Load() > 0 {
		e.Errorf("the holder of %q was told, but nobody waits", r.Key)
	}
	return told
}

// told waits until each of them is told.
func (e *env) told(all ...*news) {
	e.Helper()
	for i, told := range all {
		select {
		case <-told.came:
		case <-time.After(e.slack + e.lost()):
			e.Fatalf("holder %d was not told", i)
		}
	}
}

func joinRacesWithAsking(e *env) {
	other := e.open()
	for range 50 {
		a, w := e.ask("k"), e.ask("k")
		e.grant(e.d, a)
		told := make(chan struct{}, 2)
		a.Wanted = func() {
			select {
			case told <- struct{}{}:
			default:
			}
		}
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := contend.Try(e.ctx, other, queued(w)); err != nil {
				e.Errorf("Try: %v", err)
			}
		})
		if e.renewed(e.d, a).Wanted {
			a.Wanted()
		}
		both.Wait()
		e.told(&news{came: told})
		e.release(other, w)
		e.release(e.d, a)
	}
}

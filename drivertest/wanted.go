// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"slices"
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
		Needs: []Need{needTellsWanted}, run: joinIsTold},
	{Name: "JoinIsToldOnce",
		Rule:  "Who asks again, gives a sign of life, or is refused without Queue is not told of: only a new place is.",
		Needs: []Need{needTellsWanted, needHandoff}, run: joinIsToldOnce},
	{Name: "JoinIsToldToSharers",
		Rule:  "Each of those who share the key and asked is told when somebody joins, as is one that converted since it asked.",
		Needs: []Need{needTellsWanted, needShared}, run: joinIsToldToSharers},
	{Name: "JoinIsToldToSlots",
		Rule:  "Each of those who hold a slot and asked is told when somebody joins.",
		Needs: []Need{needTellsWanted, needSlots}, run: joinIsToldToSlots},
	{Name: "JoinIsToldToWhoAsks",
		Rule:  "Nobody is told of a join who released the key, who renewed without Wanted since, or who holds another key.",
		Needs: []Need{needTellsWanted}, run: joinIsToldToWhoAsks},
	{Name: "KeeperIsNamed",
		Rule:  "A refusal says Keeps while a holder stands that asked with Keeps last; who joins is told to it as to others.",
		Needs: []Need{needTellsWanted, needEnters}, run: keeperIsNamed},
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

func joinIsTold(e *env) {
	for _, key := range []string{"k", "a\x00}\xff"} {
		a, b, c := e.ask(key), e.ask(key), e.ask(key)
		e.grant(e.d, a)
		told := e.asks(e.d, a)
		other := e.open()
		e.join(other, b, 0)
		e.told(told)
		e.release(other, b)
		b = e.ask(key)
		e.join(other, b, 0)
		e.told(told)

		e.release(e.d, a) // who was handed the key is told as well
		e.turn(other, b, e.ttl)
		told = e.asks(other, b)
		e.join(e.d, c, 0)
		e.told(told)
		e.release(other, b)
		e.turn(e.d, c, e.ttl)
		e.release(e.d, c)
	}
}

// marker is a key whose holder is told of what happens after everything else.
func (e *env) marker(d driver.Driver) (passes func()) {
	e.Helper()
	m := e.ask("marker")
	e.grant(d, m)
	told := e.asks(d, m)
	return func() {
		e.Helper()
		e.join(e.d, e.ask("marker"), 0)
		e.told(told)
	}
}

func joinIsToldOnce(e *env) {
	d := e.open()
	a, w := e.ask("k"), e.ask("k")
	e.grant(d, a)
	told := e.asks(d, a)
	passes := e.marker(d)
	e.refuse(e.d, e.ask("k"))
	e.join(e.d, w, 0)
	e.told(told)
	e.join(e.d, w, 0)
	e.renewed(e.d, queued(w))
	e.refuse(e.d, e.ask("k"))
	passes()
	if n := told.n.Load(); n != 1 {
		e.Errorf("the holder was told %d times, want once", n)
	}
}

func joinIsToldToSharers(e *env) {
	ds := []driver.Driver{e.d, e.open()}
	converts := e.ask("k")
	fence := e.grant(e.d, converts).Fence
	all := []*news{e.asks(e.d, converts)}
	e.convert(e.d, converts, fence)
	rs := []contend.Owner{converts}
	for i := range 3 {
		r := e.reader("k")
		e.beside(ds[i%2], r)
		if rs = append(rs, r); i == 0 {
			continue // nobody has to know
		}
		all = append(all, e.asks(ds[i%2], r))
	}
	w := e.ask("k")
	e.join(e.open(), w, 0)
	e.told(all...)
	e.release(e.d, w)
	e.release(ds[1], rs[2])
	e.join(e.open(), e.ask("k"), 0)
	e.told(all[0], all[2])
}

func joinIsToldToSlots(e *env) {
	const n = 3
	ds := []driver.Driver{e.d, e.open()}
	var all []*news
	for i := range n {
		r := e.slotted("k", n)
		e.grantSlot(ds[i%2], r, i)
		all = append(all, e.asks(ds[i%2], r))
	}
	e.join(e.open(), e.slotted("k", n), 0)
	e.told(all...)
}

func joinIsToldToWhoAsks(e *env) {
	d := e.open()
	a, b, c, other := e.ask("k"), e.ask("k"), e.ask("c"), e.ask("other")
	e.grant(d, a)
	e.grant(d, c)
	e.grant(d, other)
	none := []*news{e.asks(d, a), e.asks(d, c), e.asks(d, other)}
	e.release(d, a)
	e.grant(d, b)
	e.renewed(d, c)
	passes := e.marker(d)
	e.join(e.d, e.ask("k"), 0)
	e.join(e.d, e.ask("c"), 0)
	passes()
	if i := slices.IndexFunc(none, func(told *news) bool { return told.n.Load() > 0 }); i >= 0 {
		e.Errorf("told is holder %d, whom it does not concern", i)
	}
}

func keeperIsNamed(e *env) {
	names := func(want bool, when string) {
		e.Helper()
		if res := e.try(e.open(), e.ask("k")); res.Granted || res.Keeps != want {
			e.Errorf("%s: Keeps is %v: %+v", when, res.Keeps, res)
		}
	}
	a, b := e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	names(false, "before it asked")
	e.asks(e.d, a)
	names(false, "it only wants to hear")
	e.release(e.d, a)
	a = e.ask("k")
	e.grant(e.d, a)
	a.Keeps = true
	told := e.asks(e.d, a)
	names(true, "it keeps")
	d := e.open()
	e.join(d, b, 0)
	e.told(told)
	e.release(e.d, a)
	e.turn(d, b, e.long)
	names(false, "it has gone")
	e.release(d, b)
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

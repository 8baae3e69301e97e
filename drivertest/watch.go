// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var hinted = []Need{needQueue, needHints}

var watchCases = []Case{
	{Name: "HintReachesTheNext",
		Rule:  "A Release gives a hint to the next in the queue, if its Watch was confirmed before.",
		Needs: hinted, run: hintReachesTheNext},
	{Name: "HintWakesNobodyElse",
		Rule:  "A Release gives a hint to the next in the queue and to nobody behind it.",
		Needs: hinted, run: hintWakesNobodyElse},
	{Name: "HintAfterAPlaceWasGivenUp",
		Rule:  "When a waiter gives up a key that it was just handed, the next one gets a hint.",
		Needs: hinted, run: hintAfterGivingUp},
	{Name: "WatchersAreIndependent",
		Rule:  "The end of one Watch does not affect the hints of others.",
		Needs: hinted, run: watchersAreIndependent},
	{Name: "WatchAfterTheJoin",
		Rule:  "A Watch gives a hint for what happened to its owner's place since the owner joined.",
		Needs: []Need{needQueue, needHints, needJoinFirst}, run: watchAfterTheJoin},
	{Name: "WatcherThatIsGone",
		Rule:  "A key whose next waiter no longer watches is handed off to the one behind it, within a bounded time.",
		Needs: queueing, timely: true, run: watcherThatIsGone},
}

// watch returns the hints for r until the case ends. nil: this engine polls.
func (e *env) watch(d driver.Driver, r contend.Owner) <-chan struct{} {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	e.Cleanup(cancel)
	ch, err := contend.Watch(ctx, d, r)
	if err != nil {
		e.Fatalf("Watch of %q: %v", r.Key, err)
	}
	if !e.traits.Hints { // what may come is of other waiters, not of the key
		return nil
	}
	return ch
}

// hints is watch of an engine that promises them.
func (e *env) hints(d driver.Driver, r contend.Owner) <-chan struct{} {
	e.Helper()
	ch := e.watch(d, r)
	if ch == nil {
		e.Fatalf("Watch of %q gave no channel, and the engine promises hints", r.Key)
	}
	return ch
}

// hinted waits for a hint.
func (e *env) hinted(ch <-chan struct{}) {
	e.Helper()
	e.comes(ch, e.slack, "no hint")
}

func hintReachesTheNext(e *env) {
	for range 20 { // a hint that races with its Watch is sometimes lost
		a, b, d := e.ask("k"), e.ask("k"), e.open()
		e.grant(e.d, a)
		ch := e.hints(d, b)
		e.join(d, b, 0)
		e.release(e.d, a)
		e.hinted(ch)
		e.grant(d, queued(b))
		e.release(d, b)
	}
}

func watchAfterTheJoin(e *env) {
	a, b, d := e.ask("k"), e.ask("k"), e.open()
	e.grant(e.d, a)
	e.join(d, b, 0)
	ch := e.hints(d, b)
	e.release(e.d, a)
	e.hinted(ch)
	e.grant(d, queued(b))
	c := e.ask("k")
	e.join(e.d, c, 0)
	e.release(d, b)
	e.hinted(e.hints(e.d, c))
	e.grant(e.d, queued(c))
}

func hintWakesNobodyElse(e *env) {
	a := e.ask("k")
	e.grant(e.d, a)
	var rs []contend.Owner
	var chs []<-chan struct{}
	for i := range 5 {
		r := e.ask("k")
		chs = append(chs, e.hints(e.d, r))
		e.join(e.d, r, i)
		rs = append(rs, r)
	}
	e.release(e.d, a)
	for i := range rs {
		e.hinted(chs[i])
		e.grant(e.d, queued(rs[i]))
		for j := i + 2; j < len(rs); j++ { // the new first may get a hint
			select {
			case <-chs[j]:
				e.Errorf("waiter %d got a hint from the release for waiter %d", j, i)
			default:
			}
		}
		e.release(e.d, rs[i])
	}
}

func hintAfterGivingUp(e *env) {
	a, b, c := e.ask("k"), e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	chb, chc := e.hints(e.d, b), e.hints(e.d, c)
	e.join(e.d, b, 0)
	e.join(e.d, c, 1)
	e.release(e.d, a)
	e.hinted(chb)
	e.release(e.d, b)
	e.eventually(0, "the hint after which the Try is granted", func() bool {
		e.hinted(chc)
		return e.try(e.d, queued(c)).Granted
	})
}

func watchersAreIndependent(e *env) {
	a, b, c := e.ask("k"), e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	if _, err := contend.Watch(ctx, e.d, b); err != nil {
		e.Fatalf("Watch: %v", err)
	}
	ch := e.hints(e.d, c)
	e.join(e.d, c, 0)
	cancel()
	e.release(e.d, a)
	e.hinted(ch)
	e.grant(e.d, queued(c))
}

func watcherThatIsGone(e *env) {
	a, gone, b := e.ask("k"), e.brief(e.ask("k")), e.ask("k")
	e.grant(e.d, a)
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	if _, err := contend.Watch(ctx, e.d, gone); err != nil {
		e.Fatalf("Watch: %v", err)
	}
	e.watch(e.d, b)
	e.join(e.d, gone, 0)
	e.join(e.d, b, 1)
	cancel()
	e.release(e.d, a)
	e.turn(e.d, b, 3*e.ttl)
	e.heldBy(b)
}

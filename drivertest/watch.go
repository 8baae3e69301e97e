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
		Needs: hinted,
		play:  "20 times; grant a; hear b elsewhere; join b; release a; hinted b; grant b queued; release b"},
	{Name: "HintWakesNobodyElse",
		Rule:  "A Release gives a hint to the next in the queue and to nobody behind it.",
		Needs: hinted,
		play: "grant a;" + each(rounds(5), "hear w#; join w#") + `release a; hinted w0; grant w0 queued; silent w2..w4; release w0;
			hinted w1; grant w1 queued; silent w3 w4; release w1; hinted w2; grant w2 queued; silent w4; release w2;
			hinted w3; grant w3 queued; release w3; hinted w4; grant w4 queued; release w4`},
	{Name: "HintAfterAPlaceWasGivenUp",
		Rule:  "When a waiter gives up a key that it was just handed, the next one gets a hint.",
		Needs: hinted,
		play:  "grant a; hear b c; join b c; release a; hinted b; release b; heed c"},
	{Name: "WatchersAreIndependent",
		Rule:  "The end of one Watch does not affect the hints of others.",
		Needs: hinted,
		play:  "grant a; watch b; hear c; join c; unwatch b; release a; hinted c; grant c queued"},
	{Name: "WatchAfterTheJoin",
		Rule:  "A Watch gives a hint for what happened to its owner's place since the owner joined.",
		Needs: []Need{needQueue, needHints, needJoinFirst},
		play: `grant a; join b elsewhere; hear b; release a; hinted b; grant b queued; join c; release b; hear c; hinted c;
			grant c queued`},
	{Name: "WatcherThatIsGone",
		Rule:  "A key whose next waiter no longer watches is handed off to the one behind it, within a bounded time.",
		Needs: queueing, timely: true,
		play: "grant a; watch d brief; watch b; join d brief; join b; unwatch d; release a; turn b in=3ttl; held b"},
}

// watch returns the hints for r until the case ends. nil: this engine polls.
func (e *env) watch(d driver.Driver, r contend.Owner) <-chan struct{} {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	e.Cleanup(cancel)
	return e.watchUntil(ctx, d, r)
}

func (e *env) watchUntil(ctx context.Context, d driver.Driver, r contend.Owner) <-chan struct{} {
	e.Helper()
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

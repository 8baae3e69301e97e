// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

var sharedHandoff = []Need{needShared, needHandoff}

var sharedHandoffCases = []Case{
	{Name: "SharedHandoffIsAtOnce",
		Rule:  "A Release makes all the readers at the front of the queue holders at once, before they ask, and each claim takes the full TTL.",
		Needs: sharedHandoff, claims: true,
		play: `grant a; join r1 elsewhere; join r2 w; release a; shared r1 r2; waits w; grant r1 queued elsewhere rises clean;
			has r1 full; grant r2 queued elsewhere rises clean; has r2 full`},
	{Name: "HandedOffReaderIsNoPlace",
		Rule:  "Renew of a reader's place that was handed the key is ErrNotHeld, while those still in the queue keep theirs.",
		Needs: sharedHandoff, claims: true,
		play: "grant a; join r1 r2 w; release a; renew r2 r1 queued gone; renew w queued; grant r2 r1 queued"},
	{Name: "ReleaseOfHandedOffSharesHandsThemOn",
		Rule:  "Readers that give up after they were handed the key leave it to those that were handed it at the same time, and the last of them to the next in the queue.",
		Needs: sharedHandoff, claims: true,
		play: "grant a; join r1 r2 w; release a r1; shared r2; release r2; held w; refuse r1 queued; grant w queued; release w; free"},
	{Name: "UnclaimedSharesGoOn",
		Rule:  "A key that was handed to readers that never claim it goes to the writer behind them, within a bounded time.",
		Needs: sharedHandoff, timely: true,
		play: "grant a; join r0..r4 brief; join w; release a; turn w in=3ttl; held w"},
	{Name: "LapsedSharesKeepTheirPlacesOnce",
		Rule:  "Readers that did not claim the key once are still before later ones, in their order.",
		Needs: sharedHandoff,
		play: `grant a; join r1 r2 w b r3; release a; turn w in=long; held w; waits r1 r2 b r3; renew r1 r2 b r3 queued; release w;
			turn r1 r2; shared r1 r2; refuse r3 queued; release r1 r2; turn b`},
}

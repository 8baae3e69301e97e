// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"github.com/hasplock/hasp/driver"
)

var fencing = []Need{needFencing}

var fenceCases = []Case{
	{Name: "FencesRise", // failure case 31
		Rule:  "Each later holder of a key has a strictly larger fence, on whichever connection it asked.",
		Needs: fencing,
		play:  "100/1000 times; grant a spread rises; grant b@other spread; release a b@other"},
	{Name: "FencesRiseOverHandoffs",
		Rule:  "A holder that was handed the key has a strictly larger fence than the previous one.",
		Needs: []Need{needFencing, needQueue},
		play:  "grant w0 rises;" + each(rounds(20), "join w#+1; release w#; turn w#+1 rises; held w#+1; has w#+1 same")},
	{Name: "FencesRiseOverExpiry",
		Rule:  "A holder after one whose lease expired has a strictly larger fence.",
		Needs: fencing,
		play:  "inherit a brief rises; inherit b brief rises; inherit c brief rises; inherit d brief rises; queue? turn w in=ttl rises"},
	{Name: "FencesRiseOverIdleTime",
		Rule:  "Fences keep rising after the key was free for a long time and the store keeps nothing for it.",
		Needs: fencing,
		play:  "grant a rises; release a; free; idle; grant b elsewhere rises"},
	{Name: "FencesInARow",
		Rule:  "A grant of several fences has them all above earlier and below later ones; asking again returns only the last.",
		Needs: fencing,
		play: `grant z; release z; grant a fences=5 row=5/z; grant a elsewhere fences=5 same once; queue? join b fences=5; release a;
			turn b fences=5 row=5/a; release b; grant c rises`},
}

// rises fails unless a grant's fence is above the one before, and returns it.
func (e *env) rises(before uint64, res driver.Result) uint64 {
	e.Helper()
	if res.Fence <= before {
		e.Fatalf("the fence is %d after a holder with %d", res.Fence, before)
	}
	return res.Fence
}

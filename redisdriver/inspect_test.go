// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import "testing"

// Inspect says with which limit a waiter asks, also when it was handed the key and did not
// claim it.
func TestPlaceKeepsItsLimit(t *testing.T) {
	e := newEquality(t, false, true)
	const seq = sequence("AqBqAu .Ct") // A holds, B waits, A releases, B's claim time passes, C takes the key
	m, s := newCourse(seq, "11X", "k"), newCourse(seq, "11X", "k")
	for i := range 5 {
		if i == 3 {
			e.clock.pass(t, shortGap)
		}
		e.memory.step(t, m, i, e.clock.now())
		e.scripts.step(t, s, i, e.clock.now())
	}
	e.w.mortal(t) // the queue and the places are made anew
	info, err := e.drivers[0].Inspect(t.Context(), "k")
	if err != nil || len(info.Queue) != 1 || info.Queue[0].Limit != 1 {
		t.Errorf("%+v, %v: want one waiter with the limit 1", info.Queue, err)
	}
}

// Inspect counts all who share a key, and names the first thousand of them.
func TestInspectNamesAThousand(t *testing.T) {
	w, d := newPlain(t)
	for range maxLine + 1 {
		w.grant(d, reader("k"))
	}
	if info := w.inspect(d, "k"); info.Leases != maxLine+1 || len(info.Holders) != maxLine {
		t.Errorf("%d holders, and %d are named", info.Leases, len(info.Holders))
	}
}

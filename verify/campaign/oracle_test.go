// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// held is a hold of k that was asked for at once before it began.
func held(fence uint64, from, to Mono) history.Hold {
	return history.Hold{Key: "k", Fence: fence, Asked: int64(from - 1), Granted: int64(from), From: from.Time(), To: to.Time(), Released: (to + 1).Time()}
}

func asking(at Mono, h history.Hold) history.Hold { h.Asked = int64(at); return h }

func on(key string, h history.Hold) history.Hold { h.Key = key; return h }

func reading(h history.Hold) history.Hold { h.Shared = true; return h }

// lowered is a hold whose client only reads from then on.
func loweredAt(at Mono, h history.Hold) history.Hold {
	h.Down, h.Lowered = at.Time(), (at + 1).Time()
	return h
}

func unknown(h history.Hold) history.Hold { h.Lowered = time.Time{}; return h }

func lost(h history.Hold) history.Hold { h.Released = time.Time{}; return h }

// Every oracle finds what it is for in a history that was made up, and nothing
// in a sound one.
func TestOracles(t *testing.T) {
	for name, c := range map[string]struct {
		holds                                []history.Hold
		overlap, fall, order, linear, number bool // what must be found; order: by owners that asked after a grant; number: when fences only count
	}{
		"nothing":                  {},
		"in turn":                  {holds: []history.Hold{held(1, 10, 20), held(2, 30, 40), held(3, 50, 60)}},
		"waited for":               {holds: []history.Hold{held(1, 10, 20), asking(11, held(2, 22, 40)), asking(12, held(3, 50, 60))}},
		"lost, and then another's": {holds: []history.Hold{lost(held(1, 10, 20)), asking(5, held(2, 30, 40))}},
		"other keys":               {holds: []history.Hold{held(2, 10, 50), on("l", held(1, 20, 30))}},
		"known too late":           {holds: []history.Hold{held(3, 10, 20), lost(asking(1, held(2, 15, 12)))}},
		"two holders":              {holds: []history.Hold{held(1, 10, 20), asking(2, held(2, 19, 40))}, overlap: true, linear: true},
		"two holders, one long before": {
			holds: []history.Hold{held(1, 10, 100), held(2, 110, 120), asking(3, held(3, 115, 118)), held(4, 130, 140)}, overlap: true, linear: true},
		"the same fence":     {holds: []history.Hold{held(1, 10, 20), held(1, 30, 40)}, fall: true, order: true, linear: true, number: true},
		"a fence that falls": {holds: []history.Hold{held(5, 10, 20), held(6, 30, 40), held(4, 50, 60)}, fall: true, order: true, linear: true, number: true},
		"it falls back over two": {
			holds: []history.Hold{held(5, 10, 20), held(7, 30, 40), held(6, 50, 60)}, fall: true, order: true, linear: true, number: true},
		"one fence for two that ask at once": {
			holds: []history.Hold{asking(1, held(5, 10, 20)), asking(2, held(5, 12, 22))}, overlap: true, fall: true, order: true, linear: true, number: true},
		"readers together, in no order": {holds: []history.Hold{
			held(1, 1, 5), reading(held(7, 10, 30)), reading(asking(9, held(5, 12, 22))), reading(held(6, 14, 20)), held(9, 40, 50)}},
		"a reader beside a writer": {
			holds: []history.Hold{held(1, 10, 20), reading(asking(2, held(2, 19, 40)))}, overlap: true, linear: true},
		"a writer beside a reader": {
			holds: []history.Hold{reading(held(1, 10, 20)), asking(2, held(2, 19, 40))}, overlap: true, linear: true},
		"a writer's fence below a reader's": {
			holds: []history.Hold{reading(held(5, 10, 20)), held(4, 30, 40)}, fall: true, order: true, linear: true, number: true},
		"a reader's fence below a writer's": {
			holds: []history.Hold{held(5, 10, 20), reading(held(4, 30, 40))}, fall: true, order: true, linear: true, number: true},
		"a downgrade":                   {holds: []history.Hold{loweredAt(20, held(1, 10, 50)), reading(asking(5, held(2, 22, 60))), held(3, 70, 80)}},
		"a downgrade without an answer": {holds: []history.Hold{unknown(loweredAt(20, held(1, 10, 50))), reading(asking(5, held(2, 22, 60))), held(3, 70, 80)}},
		"a reader before the downgrade": {
			holds: []history.Hold{loweredAt(20, held(1, 10, 50)), reading(asking(5, held(2, 15, 60)))}, overlap: true, linear: true},
		"a writer after the downgrade": {
			holds: []history.Hold{loweredAt(20, held(1, 10, 50)), asking(5, held(2, 25, 60))}, overlap: true, linear: true},
		"it falls for an earlier asker": { // no order was promised unless they exclude each other
			holds: []history.Hold{held(5, 10, 20), asking(1, held(4, 30, 40))}, fall: true, linear: true},
	} {
		slices.SortFunc(c.holds, func(a, b history.Hold) int { return a.From.Compare(b.From) })
		linear, u1 := notLinear(c.holds, true)
		number, u2 := notLinear(c.holds, false)
		if u1+u2 > 0 {
			t.Errorf("%s: the search took too long", name)
		}
		for oracle, r := range map[string]struct {
			found []string
			want  bool
		}{
			"overlap": {history.Overlaps(c.holds), c.overlap}, "fall": {history.Falls(c.holds, true), c.fall}, "order": {history.Falls(c.holds, false), c.order},
			"linear": {linear, c.linear}, "number": {number, c.number},
		} {
			if (len(r.found) > 0) != r.want {
				t.Errorf("%s: %s found %q, want anything: %v", name, oracle, r.found, r.want)
			}
		}
	}
}

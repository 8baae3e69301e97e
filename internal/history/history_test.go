// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// hold is a hold of k from and to so many seconds.
func hold(owner string, fence uint64, from, to int) history.Hold {
	day := time.Unix(1_800_000_000, 0)
	return history.Hold{Key: "k", Owner: owner, Fence: fence,
		From: day.Add(time.Duration(from) * time.Second), To: day.Add(time.Duration(to) * time.Second)}
}

func on(key string, h history.Hold) history.Hold { h.Key = key; return h }

func ticks(h history.Hold, asked, queued, granted int64) history.Hold {
	h.Asked, h.Queued, h.Granted = asked, queued, granted
	return h
}

func shared(h history.Hold) history.Hold { h.Shared = true; return h }

// slot is one of limit shared holds.
func slot(n, limit int, h history.Hold) history.Hold {
	h = shared(h)
	h.Slot, h.Limit = n, limit
	return h
}

// down is a hold that is shared from so many seconds on.
func down(at int, h history.Hold) history.Hold {
	h.Down = hold("", 0, at, 0).From
	return h
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		holds []history.Hold
		want  string // part of the error; empty: none
	}{
		"nothing":     {},
		"one":         {holds: []history.Hold{hold("a", 1, 0, 9)}},
		"in turn":     {holds: []history.Hold{hold("a", 1, 0, 9), hold("b", 2, 9, 12), hold("c", 3, 20, 21)}},
		"out of step": {holds: []history.Hold{hold("c", 3, 20, 21), hold("a", 1, 0, 9), hold("b", 2, 9, 12)}},
		"no fences":   {holds: []history.Hold{hold("a", 0, 0, 9), hold("b", 0, 9, 12)}},
		"other keys":  {holds: []history.Hold{hold("a", 2, 0, 9), on("l", hold("b", 1, 5, 12))}},
		"learned too late": {holds: []history.Hold{
			hold("a", 2, 0, 9), hold("late", 1, 5, 4)}},
		"overlap": {want: "two holders",
			holds: []history.Hold{hold("a", 1, 0, 9), hold("b", 2, 8, 12)}},
		"overlap with one long before": {want: "two holders",
			holds: []history.Hold{hold("a", 1, 0, 100), hold("b", 2, 100, 101), hold("c", 3, 99, 102)}},
		"overlap in a history out of step": {want: "a from",
			holds: []history.Hold{hold("b", 2, 8, 12), hold("a", 1, 0, 9)}},
		"same fence": {want: "does not rise",
			holds: []history.Hold{hold("a", 1, 0, 9), hold("b", 1, 9, 12)}},
		"falling fence": {want: "c has 4, after b with 6",
			holds: []history.Hold{hold("a", 5, 0, 9), hold("b", 6, 9, 12), on("l", hold("x", 1, 0, 1)), hold("c", 4, 12, 13)}},
		"fence falls back over two": {want: "c has 2, after b with 3",
			holds: []history.Hold{hold("a", 1, 0, 9), hold("b", 3, 9, 12), hold("c", 2, 12, 13)}},
		"at one instant, in the order of grants": {holds: []history.Hold{
			ticks(hold("b", 2, 5, 5), 0, 0, 2), ticks(hold("a", 1, 5, 5), 0, 0, 1)}},
		"at one instant, against it": {want: "does not rise", holds: []history.Hold{
			ticks(hold("b", 2, 5, 5), 0, 0, 1), ticks(hold("a", 1, 5, 5), 0, 0, 2)}},

		"readers together, in no order": {holds: []history.Hold{
			hold("w", 3, 0, 2), shared(hold("a", 9, 2, 20)), shared(hold("b", 5, 3, 9)), shared(hold("c", 5, 4, 8)), hold("v", 10, 20, 21)}},
		"a reader beside a writer": {want: "two holders of \"k\": w",
			holds: []history.Hold{hold("w", 1, 0, 9), shared(hold("a", 2, 8, 20))}},
		"a writer beside a reader": {want: "two holders of \"k\": a",
			holds: []history.Hold{shared(hold("a", 1, 0, 20)), shared(hold("b", 2, 1, 3)), hold("w", 3, 19, 21)}},
		"a writer beside a reader, behind another key's": {want: "two holders",
			holds: []history.Hold{on("j", hold("x", 1, 0, 50)), shared(hold("a", 1, 0, 20)), hold("w", 3, 19, 21)}},
		"a writer whose fence is below a reader's": {want: "w has 6, after a with 7",
			holds: []history.Hold{shared(hold("a", 7, 0, 2)), shared(hold("b", 5, 0, 3)), hold("w", 6, 3, 4)}},
		"a reader whose fence is below a writer's": {want: "b has 5, after w with 6",
			holds: []history.Hold{shared(hold("a", 3, 0, 2)), hold("w", 6, 3, 4), shared(hold("b", 5, 5, 9))}},
		"a reader that has a writer's fence": {want: "b has 6, after w with 6",
			holds: []history.Hold{hold("w", 6, 3, 4), shared(hold("b", 6, 5, 9))}},
		"a downgrade lets readers in": {holds: []history.Hold{
			down(5, hold("w", 6, 0, 9)), shared(hold("a", 7, 5, 12)), shared(hold("b", 8, 6, 7)), hold("v", 9, 12, 13)}},
		"a reader before the downgrade": {want: "two holders of \"k\": w",
			holds: []history.Hold{down(5, hold("w", 6, 0, 9)), shared(hold("a", 7, 4, 12))}},
		"a writer after the downgrade": {want: "two holders of \"k\": w",
			holds: []history.Hold{down(5, hold("w", 6, 0, 9)), hold("v", 7, 8, 12)}},
		"a downgrade of a hold that was over": {want: "two holders of \"k\": w",
			holds: []history.Hold{down(15, hold("w", 6, 0, 9)), shared(hold("a", 7, 8, 12))}},
		"slots": {holds: []history.Hold{
			slot(0, 2, hold("a", 1, 0, 5)), slot(1, 2, hold("b", 2, 1, 9)), slot(0, 2, hold("c", 3, 5, 9)), slot(1, 2, hold("d", 4, 9, 12))}},
		"one too many": {want: "3 holders of \"k\"",
			holds: []history.Hold{slot(0, 2, hold("a", 1, 0, 5)), slot(1, 2, hold("b", 2, 1, 9)), slot(0, 2, hold("c", 3, 4, 9))}},
		"the smallest limit counts": {want: "3 holders of \"k\" at",
			holds: []history.Hold{slot(0, 2, hold("a", 1, 0, 5)), slot(1, 9, hold("b", 2, 1, 9)), slot(2, 9, hold("c", 3, 4, 9))}},
		"it counts while its holder is there": {
			holds: []history.Hold{slot(0, 2, hold("a", 1, 0, 5)), slot(1, 9, hold("b", 2, 1, 9)), slot(2, 9, hold("c", 3, 5, 9)), slot(3, 9, hold("d", 4, 5, 9))}},
		"readers count beside slots": {want: "3 holders of \"k\"",
			holds: []history.Hold{slot(0, 2, hold("a", 1, 0, 5)), shared(hold("b", 2, 1, 9)), shared(hold("c", 3, 4, 9))}},
		"one slot for two": {want: "two have slot 1",
			holds: []history.Hold{slot(1, 3, hold("a", 1, 0, 5)), slot(0, 3, hold("b", 2, 1, 9)), slot(1, 3, hold("c", 3, 4, 9))}},
		"a slot that is not there": {want: "has slot 3",
			holds: []history.Hold{slot(3, 3, hold("a", 1, 0, 5))}},
	} {
		t.Run(name, func(t *testing.T) { judge(t, history.Check(c.holds), c.want) })
	}
}

func TestCheckOrder(t *testing.T) {
	for name, c := range map[string]struct {
		holds []history.Hold
		want  string
	}{
		"nothing":         {},
		"in order":        {holds: []history.Hold{ticks(hold("a", 0, 0, 1), 1, 2, 5), ticks(hold("b", 0, 1, 2), 3, 4, 6)}},
		"asked at once":   {holds: []history.Hold{ticks(hold("b", 0, 0, 1), 2, 3, 5), ticks(hold("a", 0, 1, 2), 1, 4, 6)}},
		"not judged":      {holds: []history.Hold{ticks(hold("b", 0, 0, 1), 3, 0, 5), ticks(hold("a", 0, 1, 2), 1, 2, 6)}},
		"other keys":      {holds: []history.Hold{ticks(hold("b", 0, 0, 1), 3, 4, 5), on("l", ticks(hold("a", 0, 1, 2), 1, 2, 6))}},
		"overtaken":       {want: "overtaken", holds: []history.Hold{ticks(hold("b", 0, 0, 1), 3, 4, 5), ticks(hold("a", 0, 1, 2), 1, 2, 6)}},
		"overtaken twice": {want: "c asked at tick 9", holds: []history.Hold{ticks(hold("c", 0, 0, 1), 9, 10, 11), ticks(hold("b", 0, 1, 2), 3, 4, 12), ticks(hold("a", 0, 2, 3), 1, 2, 13)}},

		"readers hear in any order": {holds: []history.Hold{shared(ticks(hold("b", 0, 0, 1), 3, 4, 5)), shared(ticks(hold("a", 0, 0, 2), 1, 2, 6))}},
		"a reader past a writer":    {want: "b asked at tick 3", holds: []history.Hold{shared(ticks(hold("b", 0, 0, 1), 3, 4, 5)), ticks(hold("w", 0, 1, 2), 1, 2, 6)}},
		"a writer past a reader": {want: "w asked at tick 3", holds: []history.Hold{
			ticks(hold("w", 0, 0, 1), 3, 4, 5), shared(ticks(hold("b", 0, 2, 3), 9, 10, 11)), shared(ticks(hold("a", 0, 1, 2), 1, 2, 12))}},
	} {
		t.Run(name, func(t *testing.T) { judge(t, history.CheckOrder(c.holds), c.want) })
	}
}

func TestCheckFences(t *testing.T) {
	fence := func(n uint64, asked, granted int64) history.Hold {
		return ticks(hold("o"+string(rune('a'+n)), n, 0, 1), asked, 0, granted)
	}
	for name, c := range map[string]struct {
		holds []history.Hold
		want  string
	}{
		"nothing":                {},
		"in order":               {holds: []history.Hold{fence(1, 1, 2), fence(2, 3, 4), fence(3, 3, 9)}},
		"asked before the grant": {holds: []history.Hold{fence(2, 1, 5), fence(1, 4, 6)}},
		"at one instant":         {holds: []history.Hold{fence(2, 1, 5), fence(1, 5, 6)}},
		"other keys":             {holds: []history.Hold{fence(2, 1, 2), on("l", fence(1, 3, 4)), on("j", fence(2, 5, 6)), fence(3, 3, 4), on("l", fence(2, 5, 6))}},
		"not judged":             {holds: []history.Hold{fence(2, 1, 2), fence(0, 3, 4)}},
		"asked after the grant":  {want: "ob has 1, and asked after oc was granted 2", holds: []history.Hold{fence(1, 3, 4), fence(2, 1, 2)}},
		"over two": {want: "ob has 1, and asked after od was granted 3",
			holds: []history.Hold{fence(3, 1, 2), fence(2, 1, 3), fence(1, 4, 5), on("l", fence(1, 1, 9))}},
		"learned too late": {want: "does not rise",
			holds: []history.Hold{fence(2, 1, 2), ticks(hold("late", 1, 5, 4), 3, 0, 4)}},
		"twice": {want: "given twice", holds: []history.Hold{fence(2, 1, 3), fence(2, 2, 4)}},

		"readers in no order": {holds: []history.Hold{fence(1, 1, 2), shared(fence(5, 3, 4)), shared(fence(3, 5, 6)), shared(fence(3, 7, 8)), fence(6, 7, 9)}},
		"a writer after a reader": {want: "od has 3, and asked after oe was granted 4",
			holds: []history.Hold{shared(fence(4, 1, 2)), fence(3, 3, 4)}},
		"a reader after a writer": {want: "od has 3, and asked after oe was granted 4",
			holds: []history.Hold{fence(4, 1, 2), shared(fence(3, 3, 4))}},
		"a reader has a writer's": {want: "given twice", holds: []history.Hold{shared(fence(4, 1, 5)), shared(fence(4, 1, 6)), fence(4, 1, 7)}},
		"a writer has a reader's": {want: "given twice", holds: []history.Hold{fence(4, 1, 5), shared(fence(4, 2, 6)), shared(fence(5, 2, 7))}},
	} {
		t.Run(name, func(t *testing.T) { judge(t, history.CheckFences(c.holds), c.want) })
	}
}

func judge(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("a sound history: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("the error is %v, want one with %q", err, want)
	}
}

// A hold ends with its Release, or its deadline when that is earlier, and a
// renewal that is too late changes nothing.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l history.Log
		start := time.Now()
		at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
		released := l.Acquired(history.Hold{Key: "k", Owner: "a"}, at(10))
		expired := l.Acquired(history.Hold{Key: "l", Owner: "b"}, at(10))
		renewed := l.Acquired(history.Hold{Key: "m", Owner: "c"}, at(10))
		l.Downgraded(renewed)
		time.Sleep(5 * time.Second)
		l.Released(released)
		l.Extended(renewed, at(30))
		l.Extended(renewed, at(20))
		time.Sleep(6 * time.Second)
		l.Extended(expired, at(60))
		l.Released(expired)
		holds := l.Holds()
		for i, want := range []int{5, 10, 30} {
			if !holds[i].To.Equal(at(want)) || !holds[i].From.Equal(start) {
				t.Errorf("hold %d lasts from %v to %v", i, holds[i].From.Sub(start), holds[i].To.Sub(start))
			}
			if holds[i].Granted != int64(i+1) {
				t.Errorf("hold %d was granted at tick %d", i, holds[i].Granted)
			}
		}
		if !holds[2].Down.Equal(start) || !holds[0].Down.IsZero() {
			t.Errorf("one was downgraded at %v, none at %v", holds[2].Down, holds[0].Down)
		}
		if n := l.Tick(); n != 4 {
			t.Errorf("the next tick is %d", n)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	holds := make([]history.Hold, 100_000)
	for i := range holds {
		holds[i] = hold("a", uint64(i+1), i, i+1)
	}
	for b.Loop() {
		if err := history.Check(holds); err != nil {
			b.Fatal(err)
		}
	}
}

// How long two held a key counts a writer beside anybody.
func TestTogether(t *testing.T) {
	for name, c := range map[string]struct {
		a, b history.Hold
		want time.Duration
	}{
		"one after the other":         {hold("a", 1, 0, 10), hold("b", 2, 10, 20), 0},
		"two writers":                 {hold("a", 1, 0, 10), hold("b", 2, 7, 20), 3 * time.Second},
		"a reader beside a writer":    {shared(hold("a", 1, 0, 10)), hold("b", 2, 6, 8), 2 * time.Second},
		"two readers":                 {shared(hold("a", 1, 0, 10)), shared(hold("b", 2, 6, 8)), 0},
		"a reader, after a downgrade": {down(4, hold("a", 1, 0, 10)), shared(hold("b", 2, 6, 8)), 0},
		"a reader, before it":         {down(7, hold("a", 1, 0, 10)), shared(hold("b", 2, 6, 8)), time.Second},
		"two keys":                    {hold("a", 1, 0, 10), on("l", hold("b", 2, 7, 20)), 0},
	} {
		for _, both := range [][]history.Hold{{c.a, c.b}, {c.b, c.a}} {
			if got := history.Together(both); got != c.want {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
}

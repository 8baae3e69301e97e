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
// renewal that comes too late changes nothing.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l history.Log
		start := time.Now()
		at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
		released := l.Acquired(history.Hold{Key: "k", Owner: "a"}, at(10))
		expired := l.Acquired(history.Hold{Key: "l", Owner: "b"}, at(10))
		renewed := l.Acquired(history.Hold{Key: "m", Owner: "c"}, at(10))
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

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// wait is a wait for k that began and ended after so many seconds.
func wait(owner string, from, to int) history.Wait {
	h := hold(owner, 0, from, to)
	return history.Wait{Key: h.Key, Owner: owner, Asked: h.From.Add(-time.Millisecond), From: h.From, To: h.To}
}

func toShare(w history.Wait) history.Wait { w.Shared = true; return w }

func slotted(limit int, w history.Wait) history.Wait { w.Shared, w.Limit = true, limit; return w }

func away(w history.Wait) history.Wait { w.Away = true; return w }

func asked(at int, w history.Wait) history.Wait { w.Asked = hold("", 0, at, 0).From; return w }

func TestCheckIdle(t *testing.T) {
	for name, c := range map[string]struct {
		holds []history.Hold
		waits []history.Wait
		want  string // part of the error; empty: none
	}{
		"nothing":         {},
		"no wait":         {holds: []history.Hold{hold("a", 1, 0, 5), hold("b", 2, 20, 25)}},
		"handed over":     {holds: []history.Hold{hold("a", 1, 0, 5), hold("b", 2, 6, 9)}, waits: []history.Wait{wait("b", 1, 6)}},
		"free for long":   {holds: []history.Hold{hold("a", 1, 0, 5), hold("b", 2, 8, 9)}, waits: []history.Wait{wait("b", 1, 8)}, want: "while b was in the queue"},
		"free to the end": {holds: []history.Hold{hold("a", 1, 0, 5)}, waits: []history.Wait{wait("b", 1, 8)}, want: "for 3s and not at most 2s"},
		"one gives up, the next goes on": {
			holds: []history.Hold{hold("a", 1, 0, 5)}, waits: []history.Wait{wait("b", 1, 6), wait("c", 2, 8)}, want: "while b was in the queue"},
		"no wait in between": {
			holds: []history.Hold{hold("a", 1, 0, 5)}, waits: []history.Wait{wait("b", 1, 6), wait("c", 7, 8)}},
		"each grant begins anew": {
			holds: []history.Hold{hold("a", 1, 0, 5), hold("b", 2, 7, 7), hold("c", 3, 9, 9)}, waits: []history.Wait{wait("d", 1, 9)}},
		"another key": {
			holds: []history.Hold{on("l", hold("a", 1, 0, 50))}, waits: []history.Wait{wait("b", 1, 8)}, want: "for 7s"},
		"the waiter is away": {holds: []history.Hold{hold("a", 1, 0, 5)}, waits: []history.Wait{away(wait("b", 1, 20))}},
		"a waiter that is away leaves a free key to others": {
			holds: []history.Hold{hold("a", 1, 0, 5)}, waits: []history.Wait{away(wait("b", 1, 20)), wait("c", 2, 20)}, want: "c was in the queue"},

		"a reader beside readers": {
			holds: []history.Hold{shared(hold("a", 1, 0, 9))}, waits: []history.Wait{toShare(wait("b", 1, 8))}, want: "b was in the queue"},
		"a writer behind readers":               {holds: []history.Hold{shared(hold("a", 1, 0, 9))}, waits: []history.Wait{wait("b", 1, 9)}},
		"a reader behind a writer in the queue": {holds: []history.Hold{shared(hold("a", 1, 0, 9))}, waits: []history.Wait{away(wait("b", 1, 9)), toShare(wait("c", 2, 9))}},
		"a writer that may have come before": {
			holds: []history.Hold{shared(hold("a", 1, 0, 9))}, waits: []history.Wait{toShare(wait("c", 2, 9)), asked(1, wait("b", 4, 9))}},
		"a writer that came after": {
			holds: []history.Hold{shared(hold("a", 1, 0, 9))}, waits: []history.Wait{toShare(wait("c", 2, 9)), wait("b", 4, 9)}, want: "c was in the queue"},
		"a slot is free": {
			holds: []history.Hold{slot(0, 2, hold("a", 1, 0, 9))}, waits: []history.Wait{slotted(2, wait("b", 1, 8))}, want: "b was in the queue"},
		"no slot is free": {
			holds: []history.Hold{slot(0, 1, hold("a", 1, 0, 9))}, waits: []history.Wait{slotted(1, wait("b", 1, 9))}},
		"the holder's limit is reached": {
			holds: []history.Hold{slot(0, 1, hold("a", 1, 0, 9))}, waits: []history.Wait{slotted(2, wait("b", 1, 9))}},
		"a smaller limit is before": {
			holds: []history.Hold{slot(0, 2, hold("a", 1, 0, 9))}, waits: []history.Wait{away(slotted(1, wait("b", 1, 9))), slotted(2, wait("c", 2, 9))}},
		"a reader behind a downgrade": {
			holds: []history.Hold{down(3, hold("a", 1, 0, 9))}, waits: []history.Wait{toShare(wait("b", 1, 8))}, want: "for 5s"},
		"a reader before the downgrade": {holds: []history.Hold{down(8, hold("a", 1, 0, 9))}, waits: []history.Wait{toShare(wait("b", 1, 8))}},
	} {
		err := history.CheckIdle(c.holds, c.waits, func(string, time.Time, time.Time) time.Duration { return 2 * time.Second })
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}

// A stall counts for the times that it overlaps, and for no other.
func TestStalls(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	stalls := history.Stalls{{At: at(10)}, {at(20), time.Second}, {at(30), time.Second}, {at(40), 3 * time.Second}, {at(60), 9 * time.Second}}
	for _, c := range []struct {
		from, to int
		want     time.Duration
	}{
		{1, 5, 0},
		{11, 15, time.Second},
		{20, 25, 0},
		{20, 30, 0},
		{20, 31, 2 * time.Second}, // up to the report after it
		{25, 35, 2 * time.Second},
		{41, 50, 6 * time.Second},
		{61, 70, 0},
	} {
		if got := stalls.Between(at(c.from), at(c.to)); got != c.want {
			t.Errorf("from %d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	if got := history.Stalls(nil).Between(at(1), at(2)); got != 0 {
		t.Errorf("of no reports: %v", got)
	}
}

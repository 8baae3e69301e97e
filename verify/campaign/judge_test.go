// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
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

// Every oracle finds what it is for in a history that was made up, and nothing in a sound one.
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

// ev is an event of a client at a time in ms.
func ev(client, at int, e player.Event) record {
	e.At, e.N, e.Key = msAt(at), 1, "k"
	return record{Client: client, Event: e}
}

func msAt(n int) Mono { return Mono(time.Duration(n) * time.Millisecond) }

// A holder that learns of the end of its lease too late is found, unless its process did not run.
func TestOverdue(t *testing.T) {
	got := func(at, deadline, most int) record {
		return ev(1, at, player.Event{What: player.Granted, Deadline: msAt(deadline), Most: msAt(most)})
	}
	end := func(at, deadline int, closed, stands bool) record {
		e := player.Event{What: player.Ended, Deadline: msAt(deadline), Lost: !stands}
		if closed {
			e.Closed = msAt(at)
		}
		return ev(1, at, e)
	}
	took := func(d time.Duration, r record) record { r.Stood = d; return r }
	for name, c := range map[string]struct {
		records []record
		want    string
	}{
		"as it should be":                {records: []record{got(10, 900, 900), end(500, 900, false, true)}},
		"lost at its deadline":           {records: []record{got(10, 900, 900), end(903, 900, true, false)}},
		"lost by the store's answer":     {records: []record{got(10, 900, 900), end(400, 900, true, false)}},
		"a deadline too late":            {records: []record{got(10, 920, 900), end(500, 920, false, true)}, want: "20ms later than it may be"},
		"a renewal's, too":               {records: []record{got(10, 900, 900), ev(1, 300, player.Event{What: player.Renewed, Deadline: msAt(1300), Most: msAt(1200)})}, want: "100ms later"},
		"closed late":                    {records: []record{got(10, 900, 900), end(950, 900, true, false)}, want: "Done was closed 50ms after"},
		"closed late, stopped meanwhile": {records: []record{got(10, 900, 900), took(2*time.Second, end(2950, 900, true, false))}, want: "Done was closed 2.05s after"},
		"closed on resuming":             {records: []record{got(10, 900, 900), took(2*time.Second, end(2900, 900, true, false))}},
		"stalled only before":            {records: []record{took(time.Second, got(10, 900, 900)), took(time.Second, end(950, 900, true, false))}, want: "Done was closed"},
		"valid too long":                 {records: []record{got(10, 900, 900), end(901, 900, false, true)}, want: "Err is nil 1ms after"},
		"valid, and Done closed":         {records: []record{got(10, 900, 900), end(800, 900, true, true)}, want: "its Done closed: true"},
		"ended, and not looked at":       {records: []record{got(10, 900, 900), end(2000, 900, false, false)}},
	} {
		found := strings.Join(overdue(c.records, time.Second), "\n")
		if (found == "") != (c.want == "") || !strings.Contains(found, c.want) {
			t.Errorf("%s: found %q, want %q", name, found, c.want)
		}
	}
}

// A key that is free beside a waiter is found, unless a fault or the machine can be the reason.
func TestIdle(t *testing.T) {
	first := []record{
		ev(0, 0, player.Event{What: player.Asked}), ev(0, 10, player.Event{What: player.Granted}),
		ev(1, 20, player.Event{What: player.Asked}), ev(1, 30, player.Event{What: player.Waiting}),
		ev(0, 100, player.Event{What: player.Ended}), ev(0, 101, player.Event{What: player.Gone}),
	}
	late := func(at int) []record {
		return append(first[:len(first):len(first)], ev(1, at, player.Event{What: player.Granted}))
	}
	stalled := late(600)
	stalled[len(stalled)-1].Stood = 450 * time.Millisecond
	slow := late(600)
	slow[len(slow)-1].Slow = 450 * time.Millisecond
	slower := late(700)
	slower[len(slower)-1].Slow = 450 * time.Millisecond
	dead := []record{
		ev(0, 0, player.Event{What: player.Asked}), ev(0, 10, player.Event{What: player.Granted}), ev(1, 20, player.Event{What: player.Asked}), ev(1, 30, player.Event{What: player.Waiting})}
	at := func(k Kind, p Part, client, ms int, by time.Duration) injected {
		return injected{Action: Action{Kind: k, Part: p, Client: client, Nodes: []int{0}, By: by}, from: msAt(ms), to: msAt(ms)}
	}
	saves := at(RestartRDB, Prepare, -1, 120, 0)
	saves.to = msAt(570)
	for name, c := range map[string]struct {
		records  []record
		injected []injected
		want     string
	}{
		"handed over":              {records: late(105)},
		"handed over late":         {records: late(600), want: "for 499ms"},
		"the machine stalled":      {records: stalled},
		"the server was slow":      {records: slow},
		"the waiter is cut off":    {records: late(600), injected: []injected{at(Partition, Begin, 1, 50, 0), at(Partition, End, 1, 60, 0)}},
		"slow, and then stopped":   {records: slower, injected: []injected{at(StopNode, Begin, -1, 600, 0), at(StopNode, End, -1, 650, 0)}},
		"idle, and then stopped":   {records: late(700), injected: []injected{at(StopNode, Begin, -1, 600, 0), at(StopNode, End, -1, 650, 0)}, want: "for 499ms"},
		"the server saves":         {records: late(600), injected: []injected{saves}},
		"the server saved before":  {records: late(1100), injected: []injected{saves}, want: "for 999ms"},
		"another is cut off":       {records: late(600), injected: []injected{at(Partition, Begin, 2, 50, 0), at(Partition, End, 2, 60, 0)}, want: "for 499ms"},
		"the server is stopped":    {records: late(600), injected: []injected{at(StopNode, Begin, -1, 50, 0), at(StopNode, End, -1, 60, 0)}},
		"the holder died":          {records: append(dead, ev(1, 1090, player.Event{What: player.Granted})), injected: []injected{at(ClientKill, Begin, 0, 40, 0)}},
		"the holder died long ago": {records: append(dead, ev(1, 1900, player.Event{What: player.Granted})), injected: []injected{at(ClientKill, Begin, 0, 40, 0)}, want: "for 860ms"},
		"the holder is stopped":    {records: append(dead, ev(1, 1900, player.Event{What: player.Granted})), injected: []injected{at(ClientStop, Begin, 0, 40, 0), at(ClientStop, End, 0, 1950, 0)}, want: "for 860ms"},
		"the holder is cut off":    {records: append(dead, ev(1, 1900, player.Event{What: player.Granted})), injected: []injected{at(Partition, Begin, 0, 40, 0), at(Partition, End, 0, 1950, 0)}},
	} {
		r := &run{s: &Schedule{Store: Redis, MaxTTL: time.Second}, stage: cast(3, c.records...), injected: c.injected, over: msAt(2000)}
		found, _ := r.idle(c.records)
		if text := strings.Join(found, "\n"); (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: found %q, want %q", name, text, c.want)
		}
	}
}

// A lease that the store had lost is found, by what its holder heard or by its release; a lease that an operator took away is not.
func TestLostEarly(t *testing.T) {
	got := ev(1, 10, player.Event{What: player.Granted, Fence: 7, Deadline: msAt(900)})
	end := func(at, deadline int) record {
		return ev(1, at, player.Event{What: player.Ended, Fence: 7, Deadline: msAt(deadline), Lost: true, Closed: msAt(at), Kind: player.NotHeld, Err: "x"})
	}
	still := ev(1, 300, player.Event{What: player.Ended, Fence: 7, Deadline: msAt(900)})
	released := func(at int, kind string) record {
		return ev(1, at, player.Event{What: player.Released, Deadline: msAt(900), Kind: kind, Err: kind})
	}
	for name, c := range map[string]struct {
		records []record
		taken   []takenAway
		want    string
	}{
		"heard":                    {records: []record{got, end(400, 900)}, want: "fence 7 was lost 500ms before"},
		"found by its release":     {records: []record{got, still, released(400, player.NotHeld)}, want: "lost 500ms before"},
		"lost before its release":  {records: []record{got, still, released(400, player.Expired)}, want: "lost 500ms before"},
		"both, and told once":      {records: []record{got, end(300, 900), released(400, "")}, want: "lost 600ms before"},
		"renewed before":           {records: []record{got, ev(1, 300, player.Event{What: player.Renewed, Fence: 7, Deadline: msAt(1200)}), end(1000, 1200)}, want: "lost 200ms before"},
		"at its deadline":          {records: []record{got, end(901, 900)}},
		"its release was too late": {records: []record{got, still, released(901, player.NotHeld)}},
		"its release failed":       {records: []record{got, still, released(400, "unreachable")}},
		"kept":                     {records: []record{got, still, released(400, "")}},
		"taken away":               {records: []record{got, end(400, 900)}, taken: []takenAway{{key: "k", fence: 7}}},
		"another was taken away":   {records: []record{got, end(400, 900)}, taken: []takenAway{{key: "k", fence: 8}}, want: "lost"},
	} {
		book, m := player.NewBook(), cast(1).All[0]
		for _, r := range c.records {
			book.Add(m, &r.Event)
		}
		found := strings.Join(lostEarly(book.Holds, c.taken), "\n")
		if (found == "") != (c.want == "") || !strings.Contains(found, c.want) || strings.Count(found, "\n") > 0 {
			t.Errorf("%s: found %q, want %q", name, found, c.want)
		}
	}
}

// cast is a stage with clients that no process is, each in the slot of its number.
func cast(n int, said ...record) *player.Stage {
	s := &player.Stage{Book: player.NewBook()}
	for i := range n {
		s.All = append(s.All, &player.Member{Slot: i, Process: &player.Process{ID: i}})
	}
	for _, r := range said {
		s.Add(s.All[r.Client], &r.Event)
	}
	return s
}

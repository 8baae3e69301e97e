// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"strings"
	"testing"
	"time"
)

// ev is an event of a client at a time in ms.
func ev(client, at int, e event) record {
	e.At, e.N, e.Key = msAt(at), 1, "k"
	return record{Client: client, event: e}
}

func msAt(n int) Mono { return Mono(time.Duration(n) * time.Millisecond) }

// A holder that learns of the end of its lease too late is found, unless its process did not run.
func TestOverdue(t *testing.T) {
	got := func(at, deadline, most int) record {
		return ev(1, at, event{What: granted, Deadline: msAt(deadline), Most: msAt(most)})
	}
	end := func(at, deadline int, lost, stands bool) record {
		return ev(1, at, event{What: ended, Deadline: msAt(deadline), Lost: lost, Stands: stands})
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
		"a renewal's, too":               {records: []record{got(10, 900, 900), ev(1, 300, event{What: renewed, Deadline: msAt(1300), Most: msAt(1200)})}, want: "100ms later"},
		"closed late":                    {records: []record{got(10, 900, 900), end(950, 900, true, false)}, want: "Done was closed 50ms after"},
		"closed late, stopped meanwhile": {records: []record{got(10, 900, 900), took(2*time.Second, end(2950, 900, true, false))}, want: "Done was closed 2.05s after"},
		"closed on resuming":             {records: []record{got(10, 900, 900), took(2*time.Second, end(2900, 900, true, false))}},
		"stalled only before":            {records: []record{took(time.Second, got(10, 900, 900)), took(time.Second, end(950, 900, true, false))}, want: "Done was closed"},
		"valid too long":                 {records: []record{got(10, 900, 900), end(901, 900, false, true)}, want: "Err is nil 1ms after"},
		"valid, and Done closed":         {records: []record{got(10, 900, 900), end(800, 900, true, true)}, want: "its Done closed: true"},
		"ended, and nobody checked":      {records: []record{got(10, 900, 900), end(2000, 900, false, false)}},
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
		ev(0, 0, event{What: asked}), ev(0, 10, event{What: granted}),
		ev(1, 20, event{What: asked}), ev(1, 30, event{What: waiting}),
		ev(0, 100, event{What: ended}), ev(0, 101, event{What: gone}),
	}
	late := func(at int) []record { return append(first[:len(first):len(first)], ev(1, at, event{What: granted})) }
	stalled := late(600)
	stalled[len(stalled)-1].Stood = 450 * time.Millisecond
	slow := late(600)
	slow[len(slow)-1].Slow = 450 * time.Millisecond
	slower := late(700)
	slower[len(slower)-1].Slow = 450 * time.Millisecond
	dead := []record{
		ev(0, 0, event{What: asked}), ev(0, 10, event{What: granted}), ev(1, 20, event{What: asked}), ev(1, 30, event{What: waiting})}
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
		"the holder died":          {records: append(dead, ev(1, 1090, event{What: granted})), injected: []injected{at(ClientKill, Begin, 0, 40, 0)}},
		"the holder died long ago": {records: append(dead, ev(1, 1900, event{What: granted})), injected: []injected{at(ClientKill, Begin, 0, 40, 0)}, want: "for 860ms"},
		"the holder is stopped":    {records: append(dead, ev(1, 1900, event{What: granted})), injected: []injected{at(ClientStop, Begin, 0, 40, 0), at(ClientStop, End, 0, 1950, 0)}, want: "for 860ms"},
		"the holder is cut off":    {records: append(dead, ev(1, 1900, event{What: granted})), injected: []injected{at(Partition, Begin, 0, 40, 0), at(Partition, End, 0, 1950, 0)}},
	} {
		r := &run{s: &Schedule{Store: Redis, MaxTTL: time.Second}, spawned: 3, slots: []int{0, 1, 2}, startedAt: make([]Mono, 3), injected: c.injected, over: msAt(2000)}
		found, _ := r.idle(c.records)
		if text := strings.Join(found, "\n"); (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: found %q, want %q", name, text, c.want)
		}
	}
}

// A lease that the store had lost is found, by what its holder heard or by its release; one that somebody took away is not.
func TestLostEarly(t *testing.T) {
	got := ev(1, 10, event{What: granted, Fence: 7, Deadline: msAt(900)})
	end := func(w what, at int) record { return ev(1, at, event{What: w, Fence: 7, Lost: true}) }
	for name, c := range map[string]struct {
		records []record
		taken   []takenAway
		want    string
	}{
		"heard":                  {records: []record{got, end(ended, 400)}, want: "fence 7 was lost 500ms before"},
		"found by its release":   {records: []record{got, ev(1, 300, event{What: ended, Fence: 7}), end(released, 400)}, want: "lost 500ms before"},
		"both, and told once":    {records: []record{got, end(ended, 300), end(released, 400)}, want: "lost 600ms before"},
		"renewed before":         {records: []record{got, ev(1, 300, event{What: renewed, Fence: 7, Deadline: msAt(1200)}), end(ended, 1000)}, want: "lost 200ms before"},
		"at its deadline":        {records: []record{got, end(ended, 901)}},
		"kept":                   {records: []record{got, ev(1, 300, event{What: ended, Fence: 7}), ev(1, 400, event{What: released, Fence: 7})}},
		"taken away":             {records: []record{got, end(ended, 400)}, taken: []takenAway{{key: "k", fence: 7}}},
		"another was taken away": {records: []record{got, end(ended, 400)}, taken: []takenAway{{key: "k", fence: 8}}, want: "lost"},
	} {
		found := strings.Join(lostEarly(c.records, c.taken), "\n")
		if (found == "") != (c.want == "") || !strings.Contains(found, c.want) || strings.Count(found, "\n") > 0 {
			t.Errorf("%s: found %q, want %q", name, found, c.want)
		}
	}
}

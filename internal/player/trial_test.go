// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// said is an event, and the number from 0 of the client that said it.
type said struct {
	by int
	Event
}

func says(by int, e Event) said {
	e.Key = "p/0"
	return said{by, e}
}

// reads are the events of hold of a client that only reads.
func reads(by int, fence uint64, ask, from, to, value int) []said {
	all := hold(by, fence, ask, from, to, value)
	all[3].What = Look
	for i := range all {
		all[i].Shared = true
	}
	return all
}

// at is an instant of the history, in milliseconds.
func at(ms int) Mono { return Mono(time.Hour + time.Duration(ms)*time.Millisecond) }

// hold are the events of a client that writes what it read, and releases in time.
func hold(by int, fence uint64, ask, from, to, value int) []said {
	return []said{
		says(by, Event{What: Asked, At: at(ask)}),
		says(by, Event{What: Granted, At: at(from), Fence: fence, Deadline: at(from + 1000)}),
		says(by, Event{What: Read, Fence: fence}),
		says(by, Event{What: Write, Fence: fence, Value: value}),
		says(by, Event{What: Ended, At: at(to), Deadline: at(from + 1000), Fence: fence}),
		says(by, Event{What: Released, At: at(to), Deadline: at(from + 1000)}),
	}
}

func join(parts ...[]said) (all []said) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// interleave has the events of two in turn.
func interleave(a, b []said) (all []said) {
	for i := range a {
		all = append(all, a[i], b[i])
	}
	return all
}

// judged is the outcome of a history of three clients on one key, after the last
// fault, so that a grant is a recovery.
func judged(t *testing.T, bare bool, history []said) *Outcome {
	t.Helper()
	r := newRun(&Trial{Keys: []string{"p/0"}, TTL: time.Second})
	var members []*Member
	for n := range 3 {
		members = append(members, &Member{Process: &Process{ID: n + 1, PID: 100 + n}})
	}
	r.over = at(-1)
	for _, s := range history {
		asks := s.What == Read || s.What == Write || s.What == Look
		if asks && bare {
			continue // nothing is written under leases without fences
		}
		if answer := r.add(members[s.by], &s.Event); (answer != nil) != asks {
			t.Fatalf("the answer to %v is %v", s.What, answer)
		}
	}
	return r.judge(time.Second, false)
}

func TestJudge(t *testing.T) {
	dead := hold(0, 1, 0, 1, 0, 0)[:3] // killed after its grant, whose lease lasts to 1001
	for name, c := range map[string]struct {
		history []said
		found   string // part of it; empty: nothing
		bare    bool   // there are no fences
	}{
		"in turn":             {history: join(hold(0, 1, 0, 1, 9, 0), hold(1, 2, 5, 10, 12, 1), hold(2, 3, 11, 20, 30, 2))},
		"killed":              {history: join(dead, hold(1, 2, 5, 1001, 1002, 0))},
		"not acquired":        {found: `no client that asked for "p/0" after the last fault acquired it alone within 32s`},
		"two holders":         {history: join(hold(0, 1, 0, 1, 9, 0), hold(1, 2, 5, 8, 12, 1)), found: `two holders of "p/0": client 1 (pid 100) from `},
		"before a dead one's": {history: join(dead, hold(1, 2, 5, 1000, 1002, 0)), found: "two holders"},
		"a fence falls":       {history: join(hold(0, 2, 0, 1, 9, 0), hold(1, 1, 10, 11, 12, 0)), found: "does not rise"},
		"a fence twice":       {history: join(hold(0, 2, 0, 1, 9, 0), hold(1, 2, 5, 11, 12, 1)), found: "given twice"},
		"a write is lost":     {history: join(hold(0, 1, 0, 1, 9, 0), hold(1, 2, 5, 10, 12, 0)), found: "client 2 (pid 101) with fence 2 made its write from value 0, and replaced 1"},
		"a renewal is honoured": {found: "two holders", history: join(dead,
			[]said{says(0, Event{What: Renewed, Deadline: at(1500)})}, hold(1, 2, 5, 1400, 1402, 0))},
		"readers together": {history: join(
			interleave(reads(0, 5, 0, 1, 9, 0), reads(1, 3, 0, 2, 8, 0)), hold(2, 6, 3, 10, 12, 0))},
		"a reader beside a writer": {found: "two holders", history: join(hold(0, 1, 0, 1, 9, 0), reads(1, 2, 5, 8, 12, 1))},
		"a change under a reader": {found: `changed under a reader: client 1 (pid 100) with fence 2 read value 0, and found 1`,
			history: interleave(hold(1, 2, 10, 11, 12, 0), reads(0, 2, 0, 1, 9, 0))},
		"without fences":              {bare: true, history: join(hold(0, 0, 0, 1, 9, 0), hold(1, 0, 5, 10, 12, 0))}, // a late write, which nothing refuses
		"without fences, two holders": {bare: true, history: join(hold(0, 0, 0, 1, 9, 0), hold(1, 0, 5, 8, 12, 1)), found: "two holders"},
		"without fences, taken": {bare: true, found: "was taken from client 1 (pid 100), 601ms before its deadline", history: join(
			hold(0, 0, 0, 1, 0, 0)[:3], []said{says(0, Event{What: Ended, At: at(400), Deadline: at(1001), Lost: true, Kind: NotHeld, Err: "x"})})},
		"taken before its deadline": {found: "was taken from client 1", history: join(dead,
			[]said{says(0, Event{What: Ended, At: at(400), Deadline: at(1001), Fence: 1, Lost: true, Kind: NotHeld, Err: "x"})})},
		"lost after its deadline": {history: join(dead,
			[]said{says(0, Event{What: Ended, At: at(1400), Deadline: at(1001), Fence: 1, Lost: true, Kind: NotHeld, Err: "x"})})},
		"a fence of an hour ago": {found: "asked after", history: join(hold(1, 5, 0, 1, 9, 0),
			// It ended before its holder knew: it overlaps no hold.
			[]said{says(0, Event{What: Asked, At: at(10)}), says(0, Event{What: Granted, At: at(3000), Fence: 4, Deadline: at(2000)})})},
	} {
		t.Run(name, func(t *testing.T) {
			o := judged(t, c.bare, c.history)
			all := strings.Join(o.Found, "\n")
			if c.found == "" && len(o.Found) > 0 || !strings.Contains(all, c.found) {
				t.Errorf("found %q, want %q", o.Found, c.found)
			}
		})
	}
}

// A request of a stopped client to the register is refused when it is continued.
func TestRegisterRefuses(t *testing.T) {
	late := hold(0, 1, 0, 1, 0, 0)
	o := judged(t, false, join(late[:3], hold(1, 2, 5, 1001, 1003, 0), late[3:4],
		[]said{says(0, Event{What: Ended, At: at(1400), Deadline: at(1001), Fence: 1, Lost: true, Kind: Expired, Err: "x"})}))
	if o.Refused != 1 || o.Expired != 1 || len(o.Found) > 0 {
		t.Errorf("%d refused, %d expired, found %q", o.Refused, o.Expired, o.Found)
	}
}

func TestHandoff(t *testing.T) {
	o := judged(t, false, join(hold(0, 1, 0, 1, 9, 0), hold(1, 2, 5, 40, 50, 1), hold(2, 3, 600, 700, 710, 2)))
	if o.Handoff != 31*time.Millisecond { // the third did not wait for the second
		t.Errorf("the longest handoff is %v", o.Handoff)
	}
	if !o.Recovered || o.Back != 2*time.Millisecond {
		t.Errorf("recovered %v, within %v", o.Recovered, o.Back)
	}
}

// A waiter that was in the queue before the last fault ended may stand before places of the dead, and a reader beside leases of theirs.
func TestRecovered(t *testing.T) {
	for name, c := range map[string]struct {
		history []said
		want    bool
	}{
		"asked since":     {hold(0, 1, 0, 5, 9, 0), true},
		"asked before":    {hold(0, 1, -2, 5, 9, 0), false},
		"only to read":    {reads(0, 1, 0, 5, 9, 0), false},
		"and then writes": {join(reads(0, 1, 0, 5, 9, 0), hold(1, 2, 3, 10, 12, 0)), true},
	} {
		if o := judged(t, false, c.history); o.Recovered != c.want {
			t.Errorf("%s: recovered %v, want %v", name, o.Recovered, c.want)
		}
	}
}

// A store that is gone breaks no rule.
func TestTroubleIsNoFinding(t *testing.T) {
	o := judged(t, false, []said{says(0, Event{What: Asked, At: at(0)}), says(0, Event{What: Failed, At: at(9), Kind: "unreachable", Err: "refused"})})
	if len(o.Found) > 0 || o.Trouble != "refused" || o.Class != ClassOf("unreachable") || o.Troubles["unreachable"] != 1 {
		t.Errorf("%+v", o)
	}
}

func TestHopeless(t *testing.T) {
	r := newRun(&Trial{Clients: 3})
	for kind, want := range map[string]bool{"denied": true, "full": true, "read-only": true, "login": true, "misconfigured": true, "unreachable": false, "unknown": false} {
		if got := r.fatal(&Event{What: Failed, Kind: kind}); got != want {
			t.Errorf("%s: %v", kind, got)
		}
	}
	r.silent = 3
	if !r.fatal(&Event{What: Failed, Kind: "unreachable"}) || r.fatal(&Event{What: Failed, Kind: Cancelled}) {
		t.Error("when all had no answer, it is fatal; a cancelled wait says nothing")
	}
	if r.o.Patience = time.Minute; r.fatal(&Event{What: Failed, Kind: "unreachable"}) || !r.fatal(&Event{What: Failed, Kind: "denied"}) {
		t.Error("with patience, only a refusal for good is fatal")
	}
}

// The faults follow from the seed, within the time for them.
func TestPlan(t *testing.T) {
	o := &Trial{For: 20 * time.Second, TTL: time.Second, Seed: 1, Kill: true, Stop: CanPause, Rest: 500 * time.Millisecond}
	faults := o.plan()
	if !reflect.DeepEqual(faults, o.plan()) {
		t.Error("one seed, two plans")
	}
	kills, stops := 0, 0
	for i, f := range faults {
		if f.at >= o.For || i > 0 && f.at-faults[i-1].at < o.Rest {
			t.Errorf("fault %d is at %v", i, f.at)
		}
		if f.stop == 0 {
			kills++
		} else if stops++; f.stop <= o.TTL {
			t.Errorf("a stop of %v is no longer than the TTL", f.stop)
		}
	}
	if kills == 0 || stops == 0 && CanPause {
		t.Errorf("%d kills, %d stops", kills, stops)
	}
	o.Seed = 2
	if reflect.DeepEqual(faults, o.plan()) {
		t.Error("two seeds, one plan")
	}
	few := (&Trial{TTL: time.Second, Rest: time.Second, Kill: true, Faults: 3}).plan()
	if len(few) != 3 || slices.ContainsFunc(few, func(f fault) bool { return f.stop != 0 }) {
		t.Errorf("%+v, want three that are killed", few)
	}
}

// A bound that stalls prolonged says so, and what was awaited.
func TestBoundsSayWhatWasAwaited(t *testing.T) {
	for longer, want := range map[time.Duration]string{0: "3s", 200 * time.Microsecond: "3s", time.Second: "3s, and the 1s for which this process did not run"} {
		if got := within(3*time.Second, longer); got != want {
			t.Errorf("%v longer: %q, want %q", longer, got, want)
		}
	}
}

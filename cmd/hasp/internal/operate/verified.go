// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/hasplock/hasp/internal/player"
)

// notTried is what hasp verify does not cover.
const notTried = "restarts and losses of servers, lost and late messages, clocks that are stepped: docs/guarantees.md says what holds then"

// bareNotTried is what it does not cover besides where leases have no fences.
const bareNotTried = "fences and late writes (these locks have no fences: what a client that was stopped writes too late, nothing refuses); "

// verified is the outcome of hasp verify, for programs. More fields may come.
type verified struct {
	Store   string         `json:"store"`
	Kind    string         `json:"kind"`
	Seed    uint64         `json:"seed"`
	Tried   people.Seconds `json:"tried_seconds"`
	TTL     people.Seconds `json:"ttl_seconds"`
	Clients int            `json:"clients"`
	Keys    int            `json:"keys"`
	player.Counts
	Handoff   people.Seconds `json:"handoff_seconds"`  // the longest, from the end of a hold to the next hold of a waiter
	Recovered bool           `json:"recovered"`        // every key was acquired again after the last fault
	Back      people.Seconds `json:"recovery_seconds"` // within so long
	Bound     people.Seconds `json:"recovery_bound_seconds"`
	Findings  []string       `json:"findings"` // the rules that were broken
	Promise   []string       `json:"promise"`
	NotTried  string         `json:"not_tried"`
	Verdict   string         `json:"verdict"` // ok, or the word of the exit code
	Code      int            `json:"code"`

	bare bool // leases have no fences
}

// print writes it for people.
func (v *verified) print(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-9s  %s\n", name, plain.Line(fmt.Sprintf(format, args...)))
	}
	seconds := func(s people.Seconds) time.Duration { return time.Duration(s).Round(time.Millisecond) }
	line("store", "%s", v.Store)
	line("tried", "%s, by %d clients on %s, TTL %v, seed %d", people.Short(seconds(v.Tried)), v.Clients, people.Count(v.Keys, "key", "keys"), seconds(v.TTL), v.Seed)
	line("faults", "%s, %d stopped for longer than the TTL, %s",
		people.Count(v.Killed, "client killed", "clients killed"), v.Stopped, people.Count(v.Cancelled, "wait cancelled", "waits cancelled"))
	shared := ""
	if v.Shared > 0 {
		shared = fmt.Sprintf(" (%d to read)", v.Shared)
	}
	line("locks", "%d granted%s, %d of them after a wait; the longest handoff took %v", v.Granted, shared, v.Waited, seconds(v.Handoff))
	if v.Expired > 0 {
		line("", "%s while the holder was stopped", people.Count(v.Expired, "lease expired", "leases expired"))
	}
	if v.Refused > 0 {
		line("", "%s refused by the fence", people.Count(v.Refused, "late request was", "late requests were"))
	}
	for _, kind := range slices.Sorted(maps.Keys(v.Troubles)) {
		if kind == player.NotHeld {
			line("errors", "%s gone at the release", people.Count(v.Troubles[kind], "key was", "keys were"))
			continue
		}
		line("errors", "%s: %s", people.Count(v.Troubles[kind], "wait or release failed", "waits or releases failed"), kind)
	}
	if v.Recovered {
		line("recovery", "every key was acquired again within %v after the last fault (it may take %v)", seconds(v.Back), seconds(v.Bound))
	}
	for _, f := range v.Findings {
		line("BROKEN", "%s", f)
	}
	switch {
	case v.Verdict == "ok" && v.bare:
		line("ok", "one holder at a time, every key became free")
	case v.Verdict == "ok":
		line("ok", "one holder at a time, fences rose, no late write was accepted, every key became free")
	}
	name := "promise"
	for _, p := range v.Promise {
		line(name, "%s", p)
		name = ""
	}
	line("not tried", "%s", v.NotTried)
}

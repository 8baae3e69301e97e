// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/verify/engines"
)

// Report is the result of a campaign.
type Report struct {
	Lone      bool // of one server, with and without a node record
	Engine    engines.Kind
	Outcomes  []*Outcome
	Skipped   []string // schedules that this machine cannot run
	Broken    []string // errors of the campaign itself
	Histories []string // files, one for each violation
}

// Violations returns the outcomes in which something is wrong that must hold.
func (rep *Report) Violations() []*Outcome {
	return rep.of((*Outcome).Violated)
}

// of returns the outcomes of some schedules.
func (rep *Report) of(has func(*Outcome) bool) []*Outcome {
	return slices.DeleteFunc(slices.Clone(rep.Outcomes), func(o *Outcome) bool { return !has(o) })
}

// verdict returns a cell: how often an oracle's rule held of how often it had to,
// and how often it broke in schedules where it may.
func verdict(of []*Outcome, oracle string) string {
	var must, may [2]int // how often it held, and did not
	for _, o := range of {
		for _, v := range o.Verdicts {
			switch {
			case v.Oracle != oracle:
			case len(v.May) > 0:
				may[min(1, len(v.Found))]++
			default:
				must[min(1, len(v.Found))]++
			}
		}
	}
	text := "-"
	if n := must[0] + must[1]; n > 0 {
		text = fmt.Sprintf("%d/%d", must[0], n)
		if must[1] > 0 {
			text = "**" + text + "**"
		}
	}
	if n := may[0] + may[1]; n > 0 {
		text += fmt.Sprintf(" (may break: %d of %d did)", may[1], n)
	}
	return text
}

// Markdown writes the table: each kind of fault, what happened in the
// schedules that have it, and the verdicts.
func (rep *Report) Markdown(w io.Writer) {
	fmt.Fprintf(w, "| fault | schedules | locks | to read | downgrades | renewals | releases | leases lost | stale requests refused | updates lost without fences |")
	for _, o := range oracles {
		fmt.Fprintf(w, " %s |", o)
	}
	fmt.Fprint(w, "\n|---|")
	for range 9 + len(oracles) {
		fmt.Fprint(w, "--:|")
	}
	fmt.Fprintln(w)
	line := func(name string, of []*Outcome) {
		var c Counts
		for _, o := range of {
			c.add(o.Counts)
		}
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d |",
			name, len(of), c.Locks, c.Shared, c.Lowered, c.Renewals, c.Releases, c.Lost, c.Stale, c.BareLosts)
		for _, o := range oracles {
			fmt.Fprintf(w, " %s |", verdict(of, o))
		}
		fmt.Fprintln(w)
	}
	kinds := catalogue
	switch {
	case rep.Engine != "":
		kinds = engineCatalogue(rep.Engine)
	case rep.Lone:
		kinds = loneCatalogue
	}
	for _, k := range kinds {
		line(string(k.kind), rep.of(func(o *Outcome) bool { return slices.Contains(o.Kinds, k.kind) }))
	}
	if rep.Lone {
		for _, s := range []Store{Redis, RedisNode} {
			line("**"+string(s)+"**", rep.of(func(o *Outcome) bool { return o.Schedule.Store == s }))
		}
	}
	line("**all schedules**", rep.Outcomes)
	fmt.Fprintln(w)
	if rep.Lone || rep.Engine != "" {
		longest, told, taken := time.Duration(0), time.Duration(0), 0
		for _, o := range rep.Outcomes {
			longest, told, taken = max(longest, o.Open), max(told, o.Told), taken+o.Taken
		}
		fmt.Fprintf(w, "A key was free beside a waiter for %v at most, without stalls of the machine.", longest.Round(100*time.Microsecond))
		if taken > 0 {
			fmt.Fprintf(w, " Of %d leases that were taken away the holder learned it within %v.", taken, told.Round(time.Millisecond))
		}
		fmt.Fprint(w, "\n\n")
	}
	if slices.Contains(engines.Replicated, rep.Engine) {
		rep.failovers(w)
	}
	if n := len(rep.of(func(o *Outcome) bool { return o.Schedule.Wired })); n > 0 {
		fmt.Fprintf(w, "In %d of them the links were real: network namespaces, and a bridge that dropped packets.\n\n", n)
	}
	for _, list := range [][]string{rep.Skipped, rep.Broken, rep.Histories} {
		for _, s := range list {
			first, _, _ := strings.Cut(s, "\n") // what follows is a server's log
			fmt.Fprintf(w, "- %s\n", first)
		}
	}
}

// failovers writes how often, and for how long, two owners held a key at once, and how long the next grant took.
func (rep *Report) failovers(w io.Writer) {
	var both, gaps []time.Duration
	n := 0
	for _, o := range rep.Outcomes {
		if !slices.ContainsFunc(o.Schedule.Actions, Action.replaces) || slices.Contains(o.Kinds, Break) {
			continue
		}
		n++
		gaps = append(gaps, o.Gap)
		if o.Both > 0 {
			both = append(both, o.Both)
		}
	}
	if n == 0 {
		return
	}
	slices.Sort(gaps)
	slices.Sort(both)
	fmt.Fprintf(w, "Of %d schedules in which the master may be replaced, and no operator breaks a lease, two held a key at once in %d", n, len(both))
	if len(both) > 0 {
		fmt.Fprintf(w, ", for %v in the middle and %v at most", both[len(both)/2].Round(time.Millisecond), both[len(both)-1].Round(time.Millisecond))
	}
	fmt.Fprintf(w, ". Until the next grant it took %v in the middle and %v at most.\n\n", gaps[n/2].Round(10*time.Millisecond), gaps[n-1].Round(10*time.Millisecond))
}

// Summary writes the schedule, and what is wrong.
func (o *Outcome) Summary(w io.Writer) {
	fmt.Fprint(w, o.Schedule)
	for _, v := range o.Verdicts {
		for _, f := range v.Found {
			word := "may break"
			if v.Violated() {
				word = "VIOLATED"
			}
			fmt.Fprintf(w, "%s: %s: %s\n", word, v.Oracle, f)
		}
	}
}

// Explain writes the summary, and the history of the keys.
func (o *Outcome) Explain(w io.Writer) {
	o.Summary(w)
	fmt.Fprintf(w, "\nholds, by CLOCK_MONOTONIC:\n")
	for _, h := range o.holds {
		fmt.Fprintf(w, "  %s asked %.6f: %s\n", h.Key, time.Duration(h.Asked).Seconds(), h.Owner)
	}
	fmt.Fprintf(w, "\nevents:\n")
	events := json.NewEncoder(w)
	for _, r := range o.records {
		_ = events.Encode(r) // as for all that is printed
	}
}

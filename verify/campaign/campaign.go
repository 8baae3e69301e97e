// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package campaign runs Redlock on five real redis-servers, with clients that are processes of their own, through schedules of
// faults, and judges what the clients recorded.
//
// A schedule is derived from its seed alone, and knows which of the assumptions of Redlock it breaks, so that each verdict is "must
// hold" or "may break". It needs Linux: processes are stopped, and compare instants by one monotonic clock.
//
// The links between clients and servers are proxies, or, as root, real ones, with
// each client in a network namespace, and a bridge that drops packets.
package campaign

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
)

// Options say what to run. The zero value runs nothing.
type Options struct {
	Seeds    []uint64
	Parallel int   // schedules side by side; 0 means 4
	Of       Store // empty: Redlock
	// Agent is the command hasp, through whose agents the clients lock; empty: they do it by themselves.
	Agent string
	// Wired makes real network links, between network namespaces, for the schedules with faults that allow it. See CanCutWires.
	Wired bool
	// Done is called with each outcome, by one goroutine at a time. nil: nothing is called.
	Done func(*Outcome, error)
}

// Run runs the schedule of each seed. Schedules that need something this machine
// lacks are skipped, and listed in the report. An error means that ctx ended.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.Parallel, o.Of = cmp.Or(o.Parallel, 4), cmp.Or(o.Of, Redlock)
	rep := &Report{Of: o.Of}
	places := make(chan struct{}, o.Parallel)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, seed := range o.Seeds {
		s := Generate(o.Of, seed)
		if o.Agent != "" {
			s = GenerateAgents(o.Of, seed, o.Agent)
		}
		s.Wired = o.Wired && s.canBeWired()
		if err := testserver.CanStepClocks(); err != nil && s.FakesClocks() {
			rep.Skipped = append(rep.Skipped, fmt.Sprintf("SKIPPED WITHOUT A FAKE CLOCK: seed %d: %v", seed, err))
			continue
		}
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-places }()
			out, err := perform(ctx, "", s)
			mu.Lock()
			defer mu.Unlock()
			rep.take(seed, out, err)
			if o.Done != nil {
				o.Done(out, err)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(rep.Outcomes, func(a, b *Outcome) int { return int(int64(a.Schedule.Seed) - int64(b.Schedule.Seed)) })
	return rep, context.Cause(ctx)
}

// take adds an outcome, and keeps the history of a violation.
func (rep *Report) take(seed uint64, out *Outcome, err error) {
	if err != nil {
		rep.Broken = append(rep.Broken, fmt.Sprintf("seed %d could not be run: %v", seed, err))
		return
	}
	rep.Outcomes = append(rep.Outcomes, out)
	if !out.Violated() {
		return
	}
	f, err := os.CreateTemp("", fmt.Sprintf("campaign-seed-%d-*.txt", seed))
	if err == nil {
		out.Explain(f)
		err = f.Close()
	}
	if err != nil {
		rep.Broken = append(rep.Broken, fmt.Sprintf("the history of seed %d is not kept: %v", seed, err))
		return
	}
	rep.Histories = append(rep.Histories, f.Name())
}

// Report is the result of a campaign.
type Report struct {
	Of        Store
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

// tally counts in how many schedules a rule held that must hold, and broke that may break.
func tally(of []*Outcome, oracle string) (must, held, may, broke int) {
	for _, o := range of {
		for _, v := range o.Verdicts {
			switch {
			case v.Oracle != oracle:
			case len(v.May) > 0:
				may++
				broke += min(1, len(v.Found))
			default:
				must++
				held += 1 - min(1, len(v.Found))
			}
		}
	}
	return must, held, may, broke
}

// Markdown writes what came of each rule, what the clients did, and how many schedules had each fault.
func (rep *Report) Markdown(w io.Writer) {
	fmt.Fprint(w, "| rule | held where it must | broke where it may |\n|---|--:|--:|\n")
	for _, oracle := range oracles {
		must, held, may, broke := tally(rep.Outcomes, oracle)
		mark := ""
		if held < must {
			mark = "**"
		}
		if must+may > 0 {
			fmt.Fprintf(w, "| %s | %s%d of %d%s | %d of %d |\n", oracle, mark, held, must, mark, broke, may)
		}
	}
	var c Counts
	unknown := 0
	for _, o := range rep.Outcomes {
		c.add(o.Counts)
		unknown += o.Unknown
	}
	fmt.Fprintf(w, "\n%d locks (%d to read), %d downgrades, %d renewals, %d releases, %d leases lost; %d stale requests refused by their fence, %d updates lost in a register without fences.\n\n",
		c.Locks, c.Shared, c.Lowered, c.Renewals, c.Releases, c.Lost, c.Stale, c.BareLosts)
	if unknown > 0 {
		fmt.Fprintf(w, "Of %d keys the history was too long to be searched within %v.\n\n", unknown, linearLimit)
	}
	rep.faults(w)
	if rep.Of != Redlock && !slices.ContainsFunc(rep.Outcomes, func(o *Outcome) bool { return o.Schedule.Agent != "" }) {
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
	if slices.Contains(engines.Replicated, rep.Of) {
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

// faults writes how many schedules had each fault, and in how many of these two held a key at once where that may be.
func (rep *Report) faults(w io.Writer) {
	var all []string
	for _, k := range slices.Concat(agentFaults, catalogueOf(rep.Of)) {
		of := rep.of(func(o *Outcome) bool { return slices.Contains(o.Kinds, k.kind) })
		if len(of) == 0 {
			continue
		}
		text := fmt.Sprintf("%s: %d", k.kind, len(of))
		if _, _, _, broke := tally(of, oracles[0]); broke > 0 {
			text += fmt.Sprintf(" (%d)", broke)
		}
		all = append(all, text)
	}
	fmt.Fprintf(w, "Schedules with each fault (and with two holders where that may be): %s.\n\n", strings.Join(all, "; "))
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

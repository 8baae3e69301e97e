// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/campaign"
	"github.com/hasplock/hasp/verify/engines"
)

func init() {
	campaign.ClientMain() // returns at once unless this process was started as one
	shows = append(shows, show{"campaign", "schedules of faults on real servers: of Redlock over five, one Redis, or another engine", campaigns},
		show{"sweep", "every operation of the other engines, cut at every message", sweep})
}

func campaigns(flags *flag.FlagSet) func(*testserver.Program) {
	o := campaign.Options{}
	n := flags.Int("n", 200, "how many schedules, of successive seeds")
	from := flags.Uint64("from", 1, "the first seed")
	seed := flags.Int64("seed", -1, "run this seed alone, and print its history")
	into := intoFlag(flags)
	flags.IntVar(&o.Parallel, "parallel", 4, "how many side by side")
	lone := flags.Bool("lone", false, "one server, without and with a node record, instead of Redlock over five")
	known := slices.Concat(engines.Kinds, engines.Replicated)
	engine := flags.String("engine", "", fmt.Sprintf("the engine instead of Redis: one of %q; all but Redis; or replicated, for Redis with replicas", known))
	flags.StringVar(&o.Agent, "agent", "", "clients lock through the agents of this `command`, hasp, on SQLite and one Redis")
	flags.BoolVar(&o.Wired, "wired", false, "links of the kernel's, in network namespaces, where the faults of a schedule allow it; needs root")
	return func(t *testserver.Program) {
		for i := range *n {
			o.Seeds = append(o.Seeds, *from+uint64(i))
		}
		if *seed >= 0 {
			o.Seeds = []uint64{uint64(*seed)}
		}
		if o.Wired {
			t.Must(campaign.CanCutWires())
		}
		of, mark := []campaign.Store{campaign.Redlock}, "campaign"
		switch k := engines.Kind(*engine); {
		case o.Agent != "":
			of, mark = []campaign.Store{engines.SQLite, campaign.Redis}, "campaigns of hasp agent"
		case k == "all":
			of, mark = engines.Kinds, "campaigns of the other engines"
		case k == "replicated":
			of, mark = engines.Replicated, "campaigns of Redis with replicas"
		case slices.Contains(known, k):
			if of = []campaign.Store{k}; *into != "" {
				t.Fatalf("only the tables of all engines are written into a document")
			}
		case k != "":
			t.Fatalf("no engine is called %q: there are %q", k, known)
		case *lone:
			of, mark = []campaign.Store{campaign.Redis, campaign.RedisNode}, "campaign of one server"
		}
		play(t, o, of, *seed >= 0, *into, mark)
	}
}

// play runs the schedules of some stores, explains each if it is told to, and writes the tables into a document.
func play(t *testserver.Program, o campaign.Options, of []campaign.Store, explain bool, into, mark string) {
	begun, each := time.Now(), ""
	var text strings.Builder
	for _, store := range of {
		o := o
		o.Of = store
		if store == engines.ZooKeeper3 { // each starts three Javas
			o.Parallel = max(1, o.Parallel/3)
		}
		done := 0
		o.Done = func(out *campaign.Outcome, err error) {
			done++
			fmt.Fprintf(os.Stderr, "%s: %4d/%d %s\n", store, done, len(o.Seeds), line(out, err))
			if err == nil && explain {
				out.Explain(os.Stdout)
			}
		}
		rep, err := campaign.Run(t.Context(), o)
		if v, b := len(rep.Violations()), len(rep.Broken); v+b > 0 {
			t.Errorf("%s: %d schedules violated what must hold, and %d could not be run", store, v, b)
		}
		if len(of) > 1 {
			each = " of each"
			fmt.Fprintf(&text, "**%s**\n\n", store)
		}
		if rep.Markdown(&text); err != nil { // interrupted
			fmt.Print(&text)
			t.Must(err)
		}
	}
	head := fmt.Sprintf("%d schedules%s from seed %d on, %d side by side, in %v (%s):", len(o.Seeds), each, o.Seeds[0], o.Parallel,
		time.Since(begun).Round(time.Second), now())
	publish(t, into, mark, head, text.String())
}

// line is an outcome in short.
func line(out *campaign.Outcome, err error) string {
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("seed %d: %d locks in %v; all clients back after %v", out.Schedule.Seed,
		out.Counts.Locks, out.Took.Round(100*time.Millisecond), out.Back.Round(10*time.Millisecond))
	if out.Violated() {
		text += "; VIOLATED"
	}
	return text
}

func sweep(flags *flag.FlagSet) func(*testserver.Program) {
	into := intoFlag(flags)
	return func(t *testserver.Program) {
		begun := time.Now()
		var text, found strings.Builder
		fmt.Fprint(&text, "| engine |")
		for _, c := range engines.Cuts {
			fmt.Fprintf(&text, " %s |", c)
		}
		fmt.Fprint(&text, " wrong |\n|---|--:|--:|--:|--:|\n")
		for _, k := range engines.Kinds {
			if k == engines.SQLite || t.Context().Err() != nil { // it has no connections
				continue
			}
			swept, err := testserver.Perform(t.Context(), func(t *testserver.Program) *engines.Swept {
				return engines.Sweep(t, engines.Start(t, k), engines.Sweeping{Cuts: engines.Cuts, Beside: 16})
			})
			if err != nil {
				t.Errorf("the sweep of %s: %w", k, err)
				continue
			}
			fmt.Fprintf(&text, "| %s |", k)
			for _, c := range engines.Cuts {
				n := 0
				for _, steps := range swept.Steps {
					n += steps[c]
				}
				fmt.Fprintf(&text, " %d |", n)
			}
			fmt.Fprintf(&text, " %d |\n", len(swept.Found))
			fmt.Fprintf(os.Stderr, "%s: swept: %v\n", k, swept.Steps)
			for _, f := range swept.Found {
				t.Errorf("%s: %s", k, f)
				fmt.Fprintf(&found, "\n- %s: %s", k, f)
			}
		}
		head := fmt.Sprintf("At how many messages an operation was cut, in %v (%s):", time.Since(begun).Round(time.Second), now())
		publish(t, *into, "sweep of the other engines", head, text.String()+found.String()+"\n")
	}
}

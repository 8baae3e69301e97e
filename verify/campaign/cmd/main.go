// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command cmd runs schedules of faults against Redlock, or one Redis, on real servers that it
// starts on free loopback ports and stops again.
//
//	go run ./verify/campaign/cmd                 200 schedules, four side by side: about 15 minutes
//	go run ./verify/campaign/cmd -lone           one server, with and without a node record
//	go run ./verify/campaign/cmd -engine etcd    another engine; "all" is each of them
//	go run ./verify/campaign/cmd -sweep          every operation of the other engines, cut at every message
//	go run ./verify/campaign/cmd -seed 17        one schedule, with its history
//	go run ./verify/campaign/cmd -wired          partitions by network namespaces and nftables; as root
//
// It ends with a table, and with exit code 1 when something was violated.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/campaign"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/hasplock/hasp/verify/internal/page"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	campaign.ClientMain()
	logging.Disable()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o := campaign.Options{}
	n := flag.Int("n", 200, "how many schedules, of successive seeds")
	from := flag.Uint64("from", 1, "the first seed")
	seed := flag.Int64("seed", -1, "run this seed alone, and print its history")
	into := flag.String("into", "", "write the tables into this `file`, between the marks that are there")
	flag.IntVar(&o.Parallel, "parallel", 4, "how many side by side")
	flag.StringVar(&o.Broken, "broken", "", "the safeguard that is taken out of hasp")
	lone := flag.Bool("lone", false, "one server, every other round of the faults with a node record, instead of Redlock over five")
	known := fmt.Sprintf("%q", slices.Concat(engines.Kinds, engines.Replicated))
	engine := flag.String("engine", "", "the engine instead of Redis: one of "+known+"; all but Redis; or replicated, for Redis with replicas")
	cut := flag.Bool("sweep", false, "cut every operation of the other engines at every message, and run no schedules")
	flag.BoolVar(&o.Wired, "wired", false, "links of the kernel's, in network namespaces, where the faults of a schedule allow it; needs root")
	flag.Parse()
	for i := range *n {
		o.Seeds = append(o.Seeds, *from+uint64(i))
	}
	if *seed >= 0 {
		o.Seeds = []uint64{uint64(*seed)}
	}
	if *cut {
		return sweep(ctx, *into)
	}
	if o.Wired {
		if err := campaign.CanCutWires(); err != nil {
			return err
		}
	}
	of, mark := []campaign.Store{campaign.Redlock}, "campaign"
	switch k := engines.Kind(*engine); {
	case k == "all":
		of, mark = engines.Kinds, "campaigns of the other engines"
	case k == "replicated":
		of, mark = engines.Replicated, "campaigns of Redis with replicas"
	case slices.Contains(engines.Kinds, k) || slices.Contains(engines.Replicated, k):
		if of = []campaign.Store{k}; *into != "" {
			return errors.New("only the tables of all engines are written into a document")
		}
	case k != "":
		return fmt.Errorf("no engine is called %q: there are %s", k, known)
	case *lone:
		of, mark = []campaign.Store{campaign.Redis}, "campaign of one server"
	}
	return play(ctx, o, of, *seed >= 0, *into, mark)
}

// play runs the schedules of some stores, explains each if it is told to, and writes the tables into a document.
func play(ctx context.Context, o campaign.Options, of []campaign.Store, explain bool, into, mark string) error {
	begun, each := time.Now(), ""
	var text bytes.Buffer
	var errs []error
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
		rep, err := campaign.Run(ctx, o)
		if v, b := len(rep.Violations()), len(rep.Broken); v+b > 0 {
			err = errors.Join(err, fmt.Errorf("%s: %d schedules violated what must hold, and %d could not be run", store, v, b))
		}
		errs = append(errs, err)
		if len(of) > 1 {
			each = " of each engine"
			fmt.Fprintf(&text, "**%s**\n\n", store)
		}
		rep.Markdown(&text)
		if ctx.Err() != nil {
			fmt.Print(&text)
			return errors.Join(errs...)
		}
	}
	head := fmt.Sprintf("%d schedules%s from seed %d on, %d side by side, in %v (%s):\n\n",
		len(o.Seeds), each, o.Seeds[0], o.Parallel, time.Since(begun).Round(time.Second), runtime.Version())
	fmt.Print(head, &text)
	return errors.Join(append(errs, page.Write(into, mark, head+text.String()))...)
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

// sweep cuts every operation of every engine at every message, and writes the table.
func sweep(ctx context.Context, into string) error {
	begun := time.Now()
	text := &bytes.Buffer{}
	fmt.Fprint(text, "| engine |")
	for _, c := range engines.Cuts {
		fmt.Fprintf(text, " %s |", c)
	}
	fmt.Fprint(text, " wrong |\n|---|--:|--:|--:|--:|\n")
	var errs []error
	var found []string
	for _, k := range engines.Kinds {
		if k == engines.SQLite || ctx.Err() != nil { // it has no connections
			continue
		}
		swept, err := testserver.Perform(ctx, func(t *testserver.Program) *engines.Swept {
			return engines.Sweep(t, engines.Start(t, k), engines.Sweeping{Cuts: engines.Cuts, Beside: 16})
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("the sweep of %s: %w", k, err))
			continue
		}
		fmt.Fprintf(text, "| %s |", k)
		for _, c := range engines.Cuts {
			n := 0
			for _, steps := range swept.Steps {
				n += steps[c]
			}
			fmt.Fprintf(text, " %d |", n)
		}
		fmt.Fprintf(text, " %d |\n", len(swept.Found))
		fmt.Fprintf(os.Stderr, "%s: swept: %v\n", k, swept.Steps)
		for _, f := range swept.Found {
			found = append(found, fmt.Sprintf("%s: %s", k, f))
		}
	}
	for _, f := range found {
		fmt.Fprintf(text, "\n- %s", f)
		errs = append(errs, errors.New(f))
	}
	fmt.Fprintln(text)
	head := fmt.Sprintf("At how many messages an operation was cut, in %v (%s):\n\n", time.Since(begun).Round(time.Second), runtime.Version())
	fmt.Print(head, text)
	return errors.Join(append(errs, page.Write(into, "sweep of the other engines", head+text.String()))...)
}

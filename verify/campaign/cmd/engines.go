// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/campaign"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/hasplock/hasp/verify/internal/page"
)

// names lists the engines.
func names() string {
	var all []string
	for _, k := range slices.Concat(engines.Kinds, engines.Replicated) {
		all = append(all, fmt.Sprintf("%q", string(k)))
	}
	return strings.Join(all, ", ")
}

// all runs the schedules of some engines, and writes their tables into a document.
func all(ctx context.Context, o campaign.Options, kinds []engines.Kind, into, mark string) error {
	begun := time.Now()
	var text bytes.Buffer
	var errs []error
	for _, k := range kinds {
		if ctx.Err() != nil {
			break
		}
		o := o
		o.Engine = k
		if k == engines.ZooKeeper3 { // each starts three Javas
			o.Parallel = max(1, o.Parallel/3)
		}
		o.Done = func(out *campaign.Outcome, err error) { fmt.Fprintf(os.Stderr, "%s: %s\n", k, line(out, err)) }
		rep, err := campaign.Run(ctx, o)
		if v, b := len(rep.Violations()), len(rep.Broken); v+b > 0 {
			err = errors.Join(err, fmt.Errorf("%s: %d schedules violated what must hold, and %d could not be run", k, v, b))
		}
		errs = append(errs, err)
		fmt.Fprintf(&text, "**%s**\n\n", k)
		rep.Markdown(&text)
	}
	head := fmt.Sprintf("%d schedules of each engine from seed %d on, %d side by side, in %v (%s):\n\n",
		len(o.Seeds), o.Seeds[0], o.Parallel, time.Since(begun).Round(time.Second), runtime.Version())
	fmt.Print(head, text.String())
	return errors.Join(append(errs, page.Write(into, mark, head+text.String()))...)
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

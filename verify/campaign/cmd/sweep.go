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
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/hasplock/hasp/verify/internal/page"
)

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

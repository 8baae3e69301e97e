// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/hasplock/hasp/internal/testserver"
)

// Options say what to run. The zero value runs nothing.
type Options struct {
	Seeds    []uint64
	Parallel int // schedules side by side; 0 means 4
	// Broken names a variant without a safeguard; empty: hasp as it is.
	Broken string
	// Of is the store: Redlock, which is also what empty means; Redis, in every other round with a node record; or an
	// engines.Kind.
	Of Store
	// Wired makes real network links, between network namespaces, for the schedules
	// with faults that allow it. See CanCutWires.
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
			out, err := perform(ctx, o.Broken, s)
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

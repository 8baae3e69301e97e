// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"time"
)

// fullRounds is how often each peer is measured, unless the command line or the
// scenario says otherwise.
const fullRounds = 5

// roundLimit ends a round that hangs.
const roundLimit = 10 * time.Minute

// unmeasured is shown for a bar that this run cannot judge.
const unmeasured = "not measured"

// measure runs the chosen scenarios, and prints each table as soon as it is known.
func measure(ctx context.Context, e *env, o options) *results {
	r := &results{Schema: schema, Started: time.Now(), Quick: o.quick, Machine: thisMachine(ctx)}
	var seen []*peer
	for _, s := range o.scenarios {
		sr := &scenarioResult{Name: s.name, Title: s.title, About: s.about, of: s}
		for _, m := range s.metrics {
			sr.Metrics = append(sr.Metrics, metricInfo{m.name, m.head, m.unit.String()})
		}
		r.Scenarios = append(r.Scenarios, sr)
		printScenario(os.Stdout, sr)
		field := s.field(e, slices.Clone(o.peers))
		for _, v := range s.variants(o.quick) {
			vr := &variantResult{Name: v.name, N: v.n}
			sr.Variants = append(sr.Variants, vr)
			r.Failures = append(r.Failures, vr.measure(ctx, e, s, v, field, o)...)
			if ctx.Err() != nil {
				return r
			}
			vr.summarize(s.metrics)
			printVariant(os.Stdout, sr, vr)
		}
		seen = append(seen, field...)
		sr.judge()
	}
	for _, p := range slices.Concat(peers, seen) { // in the order of the tables, then the others
		listed := slices.ContainsFunc(r.Peers, func(other participant) bool { return other.Name == p.name })
		if slices.Contains(seen, p) && !listed {
			r.Peers = append(r.Peers, participant{p.name, versions(p.modules), p.config})
		}
	}
	r.Seconds = time.Since(r.Started).Round(time.Second).Seconds()
	return r
}

// roundsOf returns how often each peer is measured.
func (o options) roundsOf(s *scenario) int {
	switch {
	case o.rounds > 0:
		return o.rounds
	case o.quick:
		return 1
	case s.rounds > 0:
		return s.rounds
	}
	return fullRounds
}

// measure fills in the cells: in each round every peer once, in another order.
func (vr *variantResult) measure(ctx context.Context, e *env, s *scenario, v variant, field []*peer, o options) (failures []string) {
	var turns []int
	for i, p := range field {
		c := &cell{Peer: p.name}
		if s.skip != nil {
			c.Skipped = s.skip(e, v, p)
		}
		if c.Skipped == "" {
			turns = append(turns, i)
		}
		vr.Cells = append(vr.Cells, c)
	}
	random := rand.New(rand.NewPCG(1, uint64(v.n)))
	rounds := o.roundsOf(s)
	for round := range rounds {
		random.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		for _, i := range turns {
			begun := time.Now()
			f, err := once(ctx, e, s, v, field[i])
			if ctx.Err() != nil {
				return failures
			}
			where := fmt.Sprintf("%s %s, round %d of %d, %s", s.name, v.name, round+1, rounds, field[i].name)
			if err != nil {
				failures = append(failures, fmt.Sprintf("%s: %v", where, err))
				fmt.Fprintf(os.Stderr, "   %s: FAILED: %v\n", where, err)
			} else {
				m := s.metrics[0]
				fmt.Fprintf(os.Stderr, "   %s: %s %s (%.1f s)\n", where, m.unit.write(f[m.name]), m.head, time.Since(begun).Seconds())
			}
			vr.Cells[i].Rounds = append(vr.Cells[i].Rounds, f)
		}
	}
	return failures
}

// once measures one peer once, on empty servers.
func once(ctx context.Context, e *env, s *scenario, v variant, p *peer) (figures, error) {
	// No deadline: some peers behave differently with one.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	timer := time.AfterFunc(roundLimit, func() { stop(errors.New("it took too long")) })
	defer timer.Stop()
	if err := e.reset(ctx); err != nil {
		return nil, fmt.Errorf("empty the servers: %w", err)
	}
	runtime.GC() // frees what the previous peer left
	f, err := s.run(ctx, e, v, p)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return f, nil
}

// judge compares the results with the bars.
func (r *scenarioResult) judge() {
	for _, b := range r.of.bars {
		got, reached, ok := b.judge(r)
		if !ok {
			got, reached = unmeasured, false
		}
		r.Verdicts = append(r.Verdicts, verdict{b.text, got, reached})
	}
}

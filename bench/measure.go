// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fullRounds is how often each peer is measured, unless the command line or the
// scenario says otherwise.
const fullRounds = 5

// roundLimit ends a round that hangs.
const roundLimit = 10 * time.Minute

// measure runs the chosen scenarios, and prints each table as soon as it is known.
func measure(ctx context.Context, e *env, o options) *results {
	r := &results{Schema: schema, Started: time.Now(), Quick: o.quick, Machine: thisMachine(ctx)}
	var seen []*peer
	for _, s := range o.scenarios {
		sr := &scenarioResult{Name: s.name, Metrics: s.metrics, of: s}
		sr.Title, sr.About = s.text()
		r.Scenarios = append(r.Scenarios, sr)
		fmt.Printf("\n%s  %s\n", strings.ToUpper(sr.Name), sr.Title)
		field := s.field(e, o.peers)
		for _, v := range s.loads(o.quick) {
			vr := &variantResult{Name: v.name, N: v.n}
			sr.Variants = append(sr.Variants, vr)
			r.Failures = append(r.Failures, vr.measure(ctx, e, s, v, field, o)...)
			if ctx.Err() != nil {
				return r
			}
			fmt.Printf("\n  %s %s\n\n", strings.ToUpper(sr.Name), vr.Name)
			sr.Table(vr).text(os.Stdout)
		}
		seen = append(seen, field...)
		sr.judge()
	}
	r.list(seen)
	r.Seconds = time.Since(r.Started).Round(time.Second).Seconds()
	return r
}

// list lists the peers that took part, in the order of the tables, then the others.
func (r *results) list(seen []*peer) {
	names := map[string]bool{}
	for _, p := range slices.Concat(peers, seen) {
		if names[p.name] || !slices.Contains(seen, p) {
			continue
		}
		names[p.name] = true
		made := ""
		if p.open != nil { // a command is of no version that this program knows
			made = versions(family(p.name))
		}
		r.Peers = append(r.Peers, participant{p.name, made, p.config})
	}
}

// roundsOf returns how often each peer is measured.
func (o options) roundsOf(s *scenario) int {
	if o.quick {
		return cmp.Or(o.rounds, 1)
	}
	return cmp.Or(o.rounds, s.rounds, fullRounds)
}

// measure fills in the cells: in each round every peer once, in another order.
func (vr *variantResult) measure(ctx context.Context, e *env, s *scenario, v variant, field []*peer, o options) (failures []string) {
	var turns []int
	for i, p := range field {
		c := &cell{Peer: p.name}
		if s.skip != nil {
			c.Skipped = s.skip(v, p)
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
				fmt.Fprintf(os.Stderr, "   %s: %s %s (%.1f s)\n", where, m.Unit.write(f[m.Name]), m.Head, time.Since(begun).Seconds())
			}
			vr.Cells[i].Rounds = append(vr.Cells[i].Rounds, f)
		}
	}
	return failures
}

// saved is how many digits results have of a figure, more than their precision.
const saved = 5

// once measures one peer once, on empty servers.
func once(ctx context.Context, e *env, s *scenario, v variant, p *peer) (figures, error) {
	ctx, stop := limited(ctx, roundLimit)
	defer stop()
	if err := e.prepare(ctx, p); err != nil {
		return nil, fmt.Errorf("prepare the servers: %w", err)
	}
	ctx, stop = limited(ctx, cmp.Or(s.limit, roundLimit))
	defer stop()
	runtime.GC() // frees what the previous peer left
	all, err := s.run(ctx, e, v, p)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	f := figures{}
	for _, m := range s.metrics {
		v, ok := all[m.Name]
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%s is %v", m.Head, v)
		}
		if ok {
			f[m.Name], _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', saved, 64), 64) // it is a number
		}
	}
	return f, nil
}

// limited ends ctx after a limit, but without a deadline, because some peers behave
// differently with one.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { stop(fmt.Errorf("not over after %v", limit)) })
	return ctx, func() { timer.Stop(); stop(nil) }
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

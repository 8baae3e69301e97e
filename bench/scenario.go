// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"
)

// scenarios are in the order in which they run and are shown.
var scenarios = []*scenario{&s1, &s2, &s3, &s4, &s5, &s6, &s7, &s8, &s9, &s10, &s11, &s12, &s13, &s14, &s15, &s16, &s17}

// scenario measures all peers under the same load.
type scenario struct {
	name    string // "s1", as scenarios.txt has it
	metrics []metric
	// variants are the loads, each measured by itself; a quick run has those of quick, if it has any.
	variants, quick []variant
	// takes reports whether a common peer takes part; nil: none does.
	takes func(e *env, p *peer) bool
	// own are peers of this scenario alone, after the common ones.
	own []*peer
	// skip says why a peer takes no part in a variant, or nothing; nil: each takes part in all.
	skip func(v variant, p *peer) (why string)
	// rounds is how often each peer is measured in a full run; 0: as often as
	// the command line says. A quick run has one round.
	rounds int
	// limit ends a round that hangs; 0: after ten minutes.
	limit time.Duration
	// run measures one peer once. The servers are empty when it begins. It
	// fails when a lock was not exclusive, or was lost. ctx ends when the
	// program is interrupted, and after the limit; it has no deadline, since some peers behave differently with one.
	// A figure that it leaves out was not measured; one without a metric is dropped.
	run func(ctx context.Context, e *env, v variant, p *peer) (figures, error)
	// curves are pictures over the variants' n.
	curves []curve
	// bars are the figures that hasp must reach.
	bars []bar
}

// scenarios.txt has a paragraph for each scenario: its name and title, and then what is done, held and counted.
//
//go:embed scenarios.txt
var scenarioTexts string

// text returns what scenarios.txt says of the scenario.
func (s *scenario) text() (title, about string) {
	_, text, _ := strings.Cut("\n\n"+scenarioTexts+"\n", "\n\n"+s.name+" ")
	text, _, _ = strings.Cut(text, "\n\n")
	title, about, _ = strings.Cut(text, "\n")
	return title, strings.ReplaceAll(strings.TrimSpace(about), "\n", " ")
}

// field returns the peers that take part, of all that were chosen.
func (s *scenario) field(e *env, all []*peer) (field []*peer) {
	for _, p := range all {
		if s.takes != nil && s.takes(e, p) {
			field = append(field, p)
		}
	}
	return slices.DeleteFunc(append(field, s.own...), func(p *peer) bool { return !p.available(e) })
}

func (s *scenario) loads(quick bool) []variant {
	if quick && s.quick != nil {
		return s.quick
	}
	return s.variants
}

// curve is a picture: a metric of every peer over n, on logarithmic axes.
type curve struct{ metric, title, over string }

// variant is one load.
type variant struct {
	name string // "64 goroutines"
	n    int    // what a curve is over: 64
}

// counts are the loads of so many each: "64 goroutines".
func counts(what string, all ...int) (vs []variant) {
	for _, n := range all {
		s := "s"
		if n == 1 {
			s = ""
		}
		vs = append(vs, variant{fmt.Sprintf("%d %s%s", n, what, s), n})
	}
	return vs
}

// metric is a column of a table.
type metric struct {
	Name   string    `json:"name"` // the key in figures: "pairs"
	Head   string    `json:"head"` // the head of the column: "pairs/s"
	Unit   unit      `json:"unit"`
	better direction // which figures are: lower or higher ones
	main   bool      // the table shows the smallest and largest figure, too, and what the figure is of hasp's
}

// only returns the named ones of some metrics.
func only(all []metric, names ...string) []metric {
	return slices.DeleteFunc(slices.Clone(all), func(m metric) bool { return !slices.Contains(names, m.Name) })
}

// figures are the result of one round of one peer, by the metric's name, in base units.
type figures map[string]float64

type direction int

const (
	neither direction = iota
	lower
	higher
)

// unit is how a figure is written.
type unit string

const (
	number  unit = "number"            // a count or a rate
	seconds unit = "seconds"           // written in µs, ms or s
	bytes   unit = "bytes"             // written in B, KiB or MiB
	percent unit = "percent of a core" // 100 is a whole one
	factor  unit = "factor"            // written with ×
)

// bar is a figure that hasp must reach. judge looks at the results of its own
// scenario; ok is false where a figure that it needs is missing.
type bar struct {
	text  string // "64 goroutines: pairs/s at least 1.5 times the best of redislock and redsync"
	judge func(r *scenarioResult) (got string, reached, ok bool)
}

// limit is what a bar demands of a figure or a ratio.
type limit func(v float64) bool

func least(n float64) limit { return func(v float64) bool { return v >= n } }

func most(n float64) limit { return func(v float64) bool { return v <= n } }

func less(n float64) limit { return func(v float64) bool { return v < n } }

// against is a bar for own's figure over that of the best of the named peers;
// without names, of all rivals.
func against(own, text string, n int, metric string, reached limit, names ...string) bar {
	return bar{text, func(r *scenarioResult) (string, bool, bool) {
		best := r.best(n, metric, names...)
		if best == "" {
			return "", false, false
		}
		ratio, ok := ratio(r.cell(n, own), r.cell(n, best), metric)
		return fmt.Sprintf("%.2f × %s", ratio, best), reached(ratio), ok
	}}
}

func atLeast(n float64, text string, load int, metric string, names ...string) bar {
	return against(baseline, text, load, metric, least(n), names...)
}

func atMost(n float64, text string, load int, metric string, names ...string) bar {
	return against(baseline, text, load, metric, most(n), names...)
}

// within is a bar for own's figure itself, whatever the peers do.
func within(own, text string, n int, metric string, reached limit) bar {
	return bar{text, func(r *scenarioResult) (string, bool, bool) {
		v, ok := r.figure(n, own, metric)
		return r.write(metric, v), reached(v), ok
	}}
}

// growth is a bar for how own's figure grows from one load to another.
func growth(own, text, metric string, from, to int, reached limit) bar {
	return bar{text, func(r *scenarioResult) (string, bool, bool) {
		a, okA := r.figure(from, own, metric)
		b, okB := r.figure(to, own, metric)
		if !okA || !okB || a == 0 {
			return "", false, false
		}
		return fmt.Sprintf("%s to %s, %.2f ×", r.write(metric, a), r.write(metric, b), b/a), reached(b / a), true
	}}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
)

// scenarios are in the order in which they run and are shown.
var scenarios = []*scenario{&s1, &s2, &s3, &s4, &s5, &s6, &s7, &s8, &s9, &s10, &s11, &s12, &s13, &s14, &s15}

// scenario measures all peers under the same load.
type scenario struct {
	name    string // "s1"
	title   string // one line
	about   string // a few sentences: what is done, held and counted
	metrics []metric
	// variants are the loads, each measured by itself; quick ones take less.
	variants func(quick bool) []variant
	// field keeps the peers that take part (it gets a copy, in the order of
	// the table), or makes others.
	field func(e *env, all []*peer) []*peer
	// skip says why a peer takes no part in a variant, or nothing; nil: each
	// takes part in all.
	skip func(e *env, v variant, p *peer) (why string)
	// rounds is how often each peer is measured in a full run; 0: as often as
	// the command line says. A quick run has one round.
	rounds int
	// run measures one peer once. The servers are empty when it begins. It
	// fails when a lock was not exclusive, or was lost. ctx ends when the
	// program is interrupted. A figure that it leaves out was not measured.
	run func(ctx context.Context, e *env, v variant, p *peer) (figures, error)
	// curves are pictures over the variants' n.
	curves []curve
	// bars are the figures that hasp must reach.
	bars []bar
}

// curve is a picture: a metric of every peer over n, on logarithmic axes.
type curve struct{ metric, title, over string }

// variant is one load.
type variant struct {
	name string // "64 goroutines"
	n    int    // what a curve is over: 64
}

// metric is a column of a table.
type metric struct {
	name string // the key in figures and in results.json: "pairs"
	head string // the head of the column: "pairs/s"
	unit unit
	// better: lower or higher figures are.
	better direction
	// main: the table shows the smallest and largest figure, too, and what
	// the figure is of hasp's.
	main bool
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
type unit int

const (
	number  unit = iota // a count or a rate
	seconds             // written in µs, ms or s
	bytes               // written in B, KiB or MiB
	percent             // of one core: 100 is a whole one
	factor              // written with ×
)

// bar is a figure that hasp must reach. judge looks at the results of its own
// scenario; ok is false where a figure that it needs is missing.
type bar struct {
	text  string // "64 goroutines: pairs/s at least 1.5 times the best of redislock and redsync"
	judge func(r *scenarioResult) (got string, reached, ok bool)
}

// waiting returns the peers that wait, which take part in most scenarios. Redlock has a
// scenario of its own.
func waiting(e *env, all []*peer) []*peer {
	return slices.DeleteFunc(available(e, all), func(p *peer) bool { return !p.waits || p.turns || p.keeps || p.name == redlock })
}

// available returns the peers with running servers.
func available(e *env, all []*peer) []*peer {
	return slices.DeleteFunc(all, func(p *peer) bool { return p.etcd && e.Etcd == "" })
}

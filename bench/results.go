// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"time"
)

// schema is the version of benchmarks.json.
const schema = 1

// results are a whole run, as benchmarks.json has it.
// Values are in base units: seconds, bytes, per second, percent of one core.
type results struct {
	Schema  int           `json:"schema"` // 1; a reader refuses an unknown version
	Started time.Time     `json:"started"`
	Seconds float64       `json:"seconds"` // how long the run took
	Quick   bool          `json:"quick"`   // shorter, with one round: a trial of the harness
	Machine machine       `json:"machine"`
	Peers   []participant `json:"peers"`

	Scenarios []*scenarioResult `json:"scenarios"`
	// Failures are the rounds that failed, a lock that was not exclusive
	// among them. There should be none.
	Failures []string `json:"failures,omitempty"`
}

// participant says how a peer was configured.
type participant struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // of its modules
	Config  string `json:"config"`
}

// scenarioResult is the result of one scenario.
type scenarioResult struct {
	Name     string           `json:"name"`
	Title    string           `json:"title"`
	About    string           `json:"about"`
	Metrics  []metric         `json:"metrics"`
	Variants []*variantResult `json:"variants"`
	Verdicts []verdict        `json:"verdicts,omitempty"`

	of *scenario
}

// verdict is a bar with what was measured.
type verdict struct {
	Bar     string `json:"bar"`
	Got     string `json:"got"`
	Reached bool   `json:"reached"`
}

// unmeasured is shown for a bar that this run cannot judge.
const unmeasured = "not measured"

// variantResult has a cell for each peer.
type variantResult struct {
	Name  string  `json:"name"`
	N     int     `json:"n"`
	Cells []*cell `json:"cells"`
}

// cell is one peer under one load.
type cell struct {
	Peer string `json:"peer"`
	// Skipped says why the peer took no part.
	Skipped string `json:"skipped,omitempty"`
	// Rounds are in the order in which they were measured; the rounds of one
	// index belong together. A round that failed is null.
	Rounds []figures `json:"rounds"`
}

// scenario returns the result of a scenario; nil if it was not run.
func (r *results) scenario(name string) *scenarioResult {
	for _, s := range r.Scenarios {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// values returns a metric's figures of the rounds that have it.
func (c *cell) values(metric string) (all []float64) {
	for _, r := range c.Rounds {
		if v, ok := r[metric]; ok {
			all = append(all, v)
		}
	}
	return all
}

// median returns the median of a metric; false if no round has it.
func (c *cell) median(metric string) (float64, bool) {
	if c == nil {
		return 0, false
	}
	all := c.values(metric)
	return median(all), len(all) > 0
}

// ratio returns the median of a/b of each round.
func ratio(a, b *cell, metric string) (float64, bool) {
	if a == nil || b == nil {
		return 0, false
	}
	var all []float64
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		x, okX := a.Rounds[i][metric]
		y, okY := b.Rounds[i][metric]
		if okX && okY && y != 0 {
			all = append(all, x/y)
		}
	}
	return median(all), len(all) > 0
}

// median returns the middle value, the mean of the two in the middle of an even
// number, and NaN of none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(all))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// cell returns a peer's cell; nil if it was not measured.
func (v *variantResult) cell(peer string) *cell {
	for _, c := range v.Cells {
		if c.Peer == peer && c.Skipped == "" {
			return c
		}
	}
	return nil
}

// cell returns a peer's cell under the load n; nil if it was not measured.
func (r *scenarioResult) cell(n int, peer string) *cell {
	for _, v := range r.Variants {
		if v.N == n {
			return v.cell(peer)
		}
	}
	return nil
}

// figure returns a peer's median.
func (r *scenarioResult) figure(n int, peer, metric string) (float64, bool) {
	return r.cell(n, peer).median(metric)
}

// metric returns a metric by its name.
func (r *scenarioResult) metric(name string) metric {
	for _, m := range r.of.metrics {
		if m.Name == name {
			return m
		}
	}
	return metric{}
}

// write writes a figure of a metric.
func (r *scenarioResult) write(metric string, v float64) string {
	return r.metric(metric).Unit.write(v)
}

// best returns the peer with the best median of a metric, of the named ones;
// without names, of all rivals. Empty when there is none.
func (r *scenarioResult) best(n int, metric string, names ...string) (peer string) {
	if len(names) == 0 {
		names = rivals()
	}
	way := r.metric(metric).better
	var top float64
	for _, name := range names {
		v, ok := r.figure(n, name, metric)
		if ok && (peer == "" || way == lower && v < top || way == higher && v > top) {
			peer, top = name, v
		}
	}
	return peer
}

// rivals returns the names of the other distributed locks: all but hasp, the bare
// commands, and those that work in one process.
func rivals() (names []string) {
	for _, p := range peers {
		if family(p.name) != baseline && !p.fails && p.on != inProcess {
			names = append(names, p.name)
		}
	}
	return names
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

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"
)

// results are a whole run, as results.json has it.
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
	Metrics  []metricInfo     `json:"metrics"`
	Variants []*variantResult `json:"variants"`
	Verdicts []verdict        `json:"verdicts,omitempty"`

	of *scenario
}

// metricInfo describes a key of figures.
type metricInfo struct {
	Name string `json:"name"`
	Head string `json:"head"`
	Unit string `json:"unit"`
}

// verdict is a bar with what was measured.
type verdict struct {
	Bar     string `json:"bar"`
	Got     string `json:"got"`
	Reached bool   `json:"reached"`
}

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
	// Median, Min and Max are of the rounds; OfHasp is the median of each
	// round's ratio to hasp's figure.
	Median figures `json:"median,omitempty"`
	OfHasp figures `json:"of_hasp,omitempty"`
	Min    figures `json:"-"`
	Max    figures `json:"-"`
}

// MarshalJSON writes figures with so many digits as are saved.
func (f figures) MarshalJSON() ([]byte, error) {
	if f == nil {
		return []byte("null"), nil
	}
	short := make(map[string]json.Number, len(f))
	for name, v := range f {
		short[name] = json.Number(strconv.FormatFloat(v, 'g', saved, 64))
	}
	return json.Marshal(short)
}

// saved is how many digits results.json has of a figure, more than their precision.
const saved = 5

// round leaves of figures what results.json has of them, so that the page has the same.
func (f figures) round() {
	for name, v := range f {
		f[name], _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', saved, 64), 64) // it is a number
	}
}

// summarize computes the figures that are derived from the rounds.
func (v *variantResult) summarize(metrics []metric) {
	base := v.cell(baseline)
	for _, c := range v.Cells {
		for _, r := range c.Rounds {
			r.round()
		}
	}
	for _, c := range v.Cells {
		c.Median, c.OfHasp, c.Min, c.Max = figures{}, figures{}, figures{}, figures{}
		for _, m := range metrics {
			if all := c.values(m.name); len(all) > 0 {
				c.Median[m.name], c.Min[m.name], c.Max[m.name] = median(all), slices.Min(all), slices.Max(all)
			}
			if r, ok := ratio(c, base, m.name); ok {
				c.OfHasp[m.name] = r
			}
		}
	}
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

func (v *variantResult) cell(peer string) *cell {
	for _, c := range v.Cells {
		if c.Peer == peer && c.Skipped == "" {
			return c
		}
	}
	return nil
}

// cell returns a peer's cell under the load n; nil if it was not
// measured.
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
	c := r.cell(n, peer)
	if c == nil {
		return 0, false
	}
	v, ok := c.Median[metric]
	return v, ok
}

// ratio returns the median over the rounds of a's figure to b's.
func (r *scenarioResult) ratio(n int, a, b, metric string) (float64, bool) {
	return ratio(r.cell(n, a), r.cell(n, b), metric)
}

// best returns the peer with the best median of a metric, of the named ones;
// without names, of all rivals. Empty when there is none.
func (r *scenarioResult) best(n int, metric string, names ...string) (peer string) {
	if len(names) == 0 {
		names = rivals()
	}
	way := neither
	for _, m := range r.of.metrics {
		if m.name == metric {
			way = m.better
		}
	}
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
		if family(p.name) != baseline && p.waits && !p.local {
			names = append(names, p.name)
		}
	}
	return names
}

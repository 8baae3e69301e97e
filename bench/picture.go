// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	_ "embed"
	"math"
	"slices"
	"strconv"
	"text/template"
)

// The dimensions of a picture, in pixels.
const (
	fieldLeft   = 84
	fieldRight  = 560
	fieldTop    = 64
	fieldBottom = 388
	labelGap    = 16 // between the names at the ends of the lines
)

// The colours of the families are in the template, in a light and a dark theme.
//
//go:embed picture.svg.tmpl
var pictureText string

var pictureTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"px": func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) },
}).Parse(pictureText))

// dashes distinguish the members of a family.
var dashes = []string{"none", "7 4", "2 3", "10 3 2 3"}

// picture is a curve of a scenario: logarithmic axes, and a line for each peer with its name at the end.
type picture struct {
	File, Title, Over                       string
	Width, Height, Left, Right, Top, Bottom int
	Rows, Columns                           []tick // of the grid
	Lines                                   []*trace
}

type tick struct {
	At   float64
	Text string
}

type point struct{ X, Y float64 }

// trace is one peer's line.
type trace struct {
	Name, Family, Own, Dash string
	Points                  []point
	Label                   float64 // the vertical position of its name
}

// End is the last point.
func (t *trace) End() point { return t.Points[len(t.Points)-1] }

func (p picture) draw() string { return filled(pictureTemplate, p) }

// Pictures returns a picture for each curve.
func (r *scenarioResult) Pictures() (all []picture) {
	for _, c := range r.of.curves {
		all = append(all, r.picture(c))
	}
	return all
}

func (r *scenarioResult) picture(c curve) picture {
	p := picture{File: r.Name + "-" + c.metric + ".svg", Title: c.title, Over: c.over, Width: 780, Height: 440,
		Left: fieldLeft, Right: fieldRight, Top: fieldTop, Bottom: fieldBottom, Lines: r.traces(c.metric)}
	var xs, ys []float64
	for _, t := range p.Lines {
		for _, at := range t.Points {
			xs, ys = append(xs, at.X), append(ys, at.Y)
		}
	}
	if len(xs) == 0 {
		return p
	}
	x := scale{slices.Min(xs), slices.Max(xs), fieldLeft + 14, fieldRight}
	y := scale{slices.Min(ys) / 1.15, slices.Max(ys) * 1.15, fieldBottom, fieldTop}
	for _, v := range y.ticks() {
		p.Rows = append(p.Rows, tick{y.at(v), r.write(c.metric, v)})
	}
	for _, v := range r.Variants {
		p.Columns = append(p.Columns, tick{x.at(float64(v.N)), strconv.Itoa(v.N)})
	}
	for _, t := range p.Lines {
		for i, at := range t.Points {
			t.Points[i] = point{x.at(at.X), y.at(at.Y)}
		}
	}
	spread(p.Lines)
	slices.Reverse(p.Lines) // hasp's above the others
	return p
}

// traces returns the lines, in figures, of the peers that cross a network.
func (r *scenarioResult) traces(metric string) (ts []*trace) {
	by := map[string]*trace{}
	members := map[string]int{}
	for _, v := range r.Variants {
		for _, c := range v.Cells {
			value, ok := c.median(metric)
			if !ok || value <= 0 || slices.ContainsFunc(localPeers, func(p *peer) bool { return p.name == c.Peer }) {
				continue
			}
			t := by[c.Peer]
			if t == nil {
				f := family(c.Peer)
				t = &trace{Name: c.Peer, Family: f, Dash: dashes[members[f]%len(dashes)]}
				if c.Peer == baseline {
					t.Own = " own"
				}
				members[f]++
				by[c.Peer], ts = t, append(ts, t)
			}
			t.Points = append(t.Points, point{float64(v.N), value})
		}
	}
	return ts
}

// spread gives each line's name a place near its end, with a gap to the next.
func spread(traces []*trace) {
	order := slices.Clone(traces)
	for _, t := range order {
		t.Label = t.End().Y
	}
	slices.SortStableFunc(order, func(a, b *trace) int { return cmp.Compare(a.Label, b.Label) })
	lowest := math.Inf(-1)
	for _, t := range order { // down from the top,
		t.Label = max(t.Label, lowest+labelGap)
		lowest = t.Label
	}
	highest := float64(fieldBottom + labelGap)
	for _, t := range slices.Backward(order) { // and up again from the bottom
		t.Label = min(t.Label, highest-labelGap)
		highest = t.Label
	}
}

// scale maps figures to pixels, logarithmically.
type scale struct{ low, high, from, to float64 }

func (s scale) at(v float64) float64 {
	if s.low == s.high {
		return (s.from + s.to) / 2
	}
	return s.from + (s.to-s.from)*math.Log(v/s.low)/math.Log(s.high/s.low)
}

// ticks returns round figures: powers of ten, and 2 and 5 of each where there
// are few.
func (s scale) ticks() (all []float64) {
	steps := []float64{1, 2, 5}
	if s.high/s.low > 1000 {
		steps = []float64{1}
	}
	for p := math.Floor(math.Log10(s.low)); p <= math.Log10(s.high); p++ {
		for _, step := range steps {
			if v := step * math.Pow(10, p); v >= s.low && v <= s.high {
				all = append(all, v)
			}
		}
	}
	return all
}

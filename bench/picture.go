// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The dimensions of a picture, in pixels.
const (
	picWidth, picHeight = 780, 440
	fieldLeft           = 84
	fieldRight          = 560
	fieldTop            = 64
	fieldBottom         = 388
	labelLeft           = fieldRight + 26
	labelGap            = 16 // between the names at the ends of the lines
)

// hue is a family's colour in the light and the dark theme.
type hue struct{ bright, dark string }

// hues are by the first word of a peer's name.
var hues = map[string]hue{
	"hasp":        {"#0550ae", "#58a6ff"},
	"floor":       {"#6e7781", "#9198a1"},
	"redislock":   {"#bc4c00", "#f0883e"},
	"redsync":     {"#1a7f37", "#3fb950"},
	"rueidislock": {"#8250df", "#bc8cff"},
	"etcd":        {"#bf3989", "#f778ba"},
}

// dashes distinguish the members of a family.
var dashes = []string{"none", "7 4", "2 3", "10 3 2 3"}

const (
	style = `.page{fill:#fff}.ink{fill:#1f2328}.dim{fill:#59636e}.grid{stroke:#d8dee4}` +
		`text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif}.title{font-size:15px;font-weight:600}.own{font-weight:700}` +
		`polyline{fill:none;stroke-width:1.7;stroke-linejoin:round}polyline.own{stroke-width:3.4}.lead{stroke-width:.8;opacity:.6}`
	darkStyle = `.page{fill:#0d1117}.ink{fill:#f0f6fc}.dim{fill:#9198a1}.grid{stroke:#2d333b}`
)

// trace is one peer's line.
type trace struct {
	name   string
	xs, ys []float64 // the figures
	dash   string
	label  float64 // the vertical position of its name
}

func (c curve) file(s *scenarioResult) string { return s.Name + "-" + c.metric + ".svg" }

// draw returns the picture as SVG: logarithmic axes, a line for each peer with
// its name at the end. It has a light and a dark theme.
func (r *scenarioResult) draw(c curve) string {
	traces := r.traces(c.metric)
	var xs, ys []float64
	for _, t := range traces {
		xs, ys = append(xs, t.xs...), append(ys, t.ys...)
	}
	if len(xs) == 0 {
		return `<svg xmlns="http://www.w3.org/2000/svg"/>`
	}
	x := scale{slices.Min(xs), slices.Max(xs), fieldLeft + 14, fieldRight}
	y := scale{slices.Min(ys) / 1.15, slices.Max(ys) * 1.15, fieldBottom, fieldTop}
	spread(traces, y)

	var w strings.Builder
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		picWidth, picHeight, picWidth, picHeight, html.EscapeString(c.title))
	fmt.Fprintf(&w, "<style>%s%s@media(prefers-color-scheme:dark){%s%s}</style>\n",
		style, colours(func(h hue) string { return h.bright }), darkStyle, colours(func(h hue) string { return h.dark }))
	fmt.Fprintf(&w, `<rect class="page" width="%d" height="%d" rx="6"/>`+"\n", picWidth, picHeight)
	fmt.Fprintf(&w, `<text class="ink title" x="20" y="30">%s</text>`+"\n", html.EscapeString(c.title))
	fmt.Fprintf(&w, `<text class="dim" x="20" y="48">medians; both axes are logarithmic</text>`+"\n")
	fmt.Fprintf(&w, `<text class="dim" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n",
		(fieldLeft+fieldRight)/2, picHeight-14, html.EscapeString(c.over))
	for _, v := range y.ticks() {
		fmt.Fprintf(&w, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, fieldLeft, fieldRight, y.at(v), y.at(v))
		fmt.Fprintf(&w, `<text class="dim" x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", fieldLeft-8, y.at(v)+4, r.write(c.metric, v))
	}
	for _, v := range r.Variants {
		at := x.at(float64(v.N))
		fmt.Fprintf(&w, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at, at, fieldTop, fieldBottom)
		fmt.Fprintf(&w, `<text class="dim" x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", at, fieldBottom+18, v.N)
	}
	for _, t := range slices.Backward(traces) { // hasp's above the others
		t.draw(&w, x, y)
	}
	w.WriteString("</svg>\n")
	return w.String()
}

// colours returns the rules for the strokes and fills of each family.
func colours(of func(hue) string) string {
	var rules []string
	for name, h := range hues {
		rules = append(rules, fmt.Sprintf(".s-%s{stroke:%s}.f-%s{fill:%s}", name, of(h), name, of(h)))
	}
	slices.Sort(rules)
	return strings.Join(rules, "")
}

// traces returns the lines of the peers that cross a network.
func (r *scenarioResult) traces(metric string) (ts []*trace) {
	by := map[string]*trace{}
	members := map[string]int{}
	for _, v := range r.Variants {
		for _, c := range v.Cells {
			value, ok := c.Median[metric]
			if !ok || value <= 0 || slices.ContainsFunc(localPeers, func(p *peer) bool { return p.name == c.Peer }) {
				continue
			}
			t := by[c.Peer]
			if t == nil {
				f := family(c.Peer)
				t = &trace{name: c.Peer, dash: dashes[members[f]%len(dashes)]}
				members[f]++
				by[c.Peer], ts = t, append(ts, t)
			}
			t.xs, t.ys = append(t.xs, float64(v.N)), append(t.ys, value)
		}
	}
	return ts
}

func family(peer string) string {
	first, _, _ := strings.Cut(peer, " ")
	return first
}

func (t *trace) draw(w *strings.Builder, x, y scale) {
	own, name := "", family(t.name)
	if t.name == baseline {
		own = " own"
	}
	var points []string
	for i := range t.xs {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(t.xs[i]), y.at(t.ys[i])))
	}
	fmt.Fprintf(w, `<polyline class="s-%s%s" stroke-dasharray="%s" points="%s"/>`, name, own, t.dash, strings.Join(points, " "))
	for i := range t.xs {
		fmt.Fprintf(w, `<circle class="f-%s" cx="%.1f" cy="%.1f" r="3"/>`, name, x.at(t.xs[i]), y.at(t.ys[i]))
	}
	end := len(t.xs) - 1
	fmt.Fprintf(w, `<line class="s-%s lead" x1="%.1f" y1="%.1f" x2="%d" y2="%.1f"/>`,
		name, x.at(t.xs[end])+5, y.at(t.ys[end]), labelLeft-4, t.label)
	fmt.Fprintf(w, `<text class="f-%s%s" x="%d" y="%.1f">%s</text>`+"\n", name, own, labelLeft, t.label+4, html.EscapeString(t.name))
}

// spread gives each line's name a place near its end, with a gap to the next.
func spread(traces []*trace, y scale) {
	order := slices.Clone(traces)
	for _, t := range order {
		t.label = y.at(t.ys[len(t.ys)-1])
	}
	slices.SortStableFunc(order, func(a, b *trace) int { return cmp.Compare(a.label, b.label) })
	lowest := math.Inf(-1)
	for _, t := range order { // down from the top,
		t.label = max(t.label, lowest+labelGap)
		lowest = t.label
	}
	highest := float64(fieldBottom + labelGap)
	for _, t := range slices.Backward(order) { // and up again from the bottom
		t.label = min(t.label, highest-labelGap)
		highest = t.label
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

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	column, line = 58, 30 // pixels of a unit of the dashboard's grid
	gap          = 6
	seconds      = 125 // how long a run is drawn
)

var colours = []string{"#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#a6761d", "#c51b7d"}

// draws makes a picture of the dashboard, from what its queries return.
func (p *scraper) draws(t *testing.T, d *dashboard) {
	for {
		if n := p.spans(t, d.Panels[0]); len(n) > 0 && n[0].points[len(n[0].points)-1][0] >= seconds {
			break
		}
		p.await(t, 1)
	}
	var b strings.Builder
	height := 0
	for _, panel := range d.Panels {
		height = max(height, (panel.GridPos.Y+panel.GridPos.H)*line)
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", gap+24*column, height+40)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#f4f5f5"/><text x="%d" y="26" font-size="18" fill="#222">%s</text>`+"\n", gap, html.EscapeString(d.Title))
	for _, panel := range d.Panels {
		g := panel.GridPos
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`, gap+g.X*column, 40+g.Y*line)
		box := picture{b: &b, w: float64(g.W*column - gap), h: float64(g.H*line - gap), panel: panel}
		switch panel.Type {
		case "row":
			fmt.Fprintf(&b, `<text x="%d" y="18" font-size="14" font-weight="bold" fill="#444">%s</text>`, gap, html.EscapeString(panel.Title))
		case "stat":
			box.stat(p.spans(t, panel))
		default:
			box.graph(p.spans(t, panel))
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	must(t, os.WriteFile(*drawInto, []byte(b.String()), 0o644))
}

// picture is the place of one panel.
type picture struct {
	b     *strings.Builder
	w, h  float64
	panel panel
}

func (p *picture) frame() {
	fmt.Fprintf(p.b, `<rect width="%g" height="%g" fill="#fff" stroke="#ddd"/><text x="8" y="16" font-weight="bold" fill="#333">%s</text>`, p.w, p.h, html.EscapeString(p.panel.Title))
}

func (p *picture) stat(spans []span) {
	p.frame()
	value := math.NaN()
	if len(spans) > 0 {
		value = spans[0].points[len(spans[0].points)-1][1]
	}
	colour := "#2a8a3e"
	if l := p.limit(); !math.IsNaN(l) && value >= l {
		colour = "#c4162a"
	}
	fmt.Fprintf(p.b, `<text x="%g" y="%g" font-size="34" text-anchor="middle" fill="%s">%s</text>`, p.w/2, p.h/2+22, colour, p.text(value))
}

// limit is where the panel's colour changes, NaN when it does not.
func (p *picture) limit() float64 {
	for _, s := range p.panel.FieldConfig.Defaults.Thresholds.Steps {
		if s.Value != nil {
			return *s.Value
		}
	}
	return math.NaN()
}

// text says a value in the panel's unit.
func (p *picture) text(v float64) string {
	switch unit := p.panel.FieldConfig.Defaults.Unit; {
	case math.IsNaN(v):
		return "–"
	case unit == "percentunit":
		return fmt.Sprintf("%.3g %%", v*100)
	case unit == "s" && v < 1:
		return fmt.Sprintf("%.3g ms", v*1000)
	case unit == "s":
		return fmt.Sprintf("%.3g s", v)
	case unit == "ops":
		return fmt.Sprintf("%.3g/s", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func (p *picture) graph(spans []span) {
	p.frame()
	const left, top, bottom = 52, 28, 40
	most := 0.0
	for _, s := range spans {
		for _, v := range s.points {
			if !math.IsNaN(v[1]) {
				most = math.Max(most, v[1])
			}
		}
	}
	limit := p.limit()
	if limit < 3*most {
		most = math.Max(most, limit)
	}
	if most == 0 {
		most = 1
	}
	most *= 1.1
	x := func(s float64) float64 { return left + s/seconds*(p.w-left-10) }
	y := func(v float64) float64 { return p.h - bottom - v/most*(p.h-top-bottom) }
	for i := range 3 {
		v := most / 1.1 * float64(i) / 2
		fmt.Fprintf(p.b, `<path d="M%d %.1fH%.1f" stroke="#e5e5e5"/><text x="%d" y="%.1f" text-anchor="end" fill="#666">%s</text>`, left, y(v), p.w-10, left-5, y(v)+4, p.text(v))
	}
	for s := 0.0; s < seconds; s += 30 {
		fmt.Fprintf(p.b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#666">%g s</text>`, x(s), p.h-bottom+14, s)
	}
	if limit <= most {
		fmt.Fprintf(p.b, `<path d="M%d %.1fH%.1f" stroke="#c4162a" stroke-dasharray="4 3"/>`, left, y(limit), p.w-10)
	}
	slices.SortFunc(spans, func(a, b span) int { return strings.Compare(a.name, b.name) })
	at := float64(left)
	for i, s := range spans {
		colour := colours[i%len(colours)]
		fmt.Fprintf(p.b, `<path fill="none" stroke="%s" stroke-width="1.5" d="%s"/>`, colour, path(s, x, y))
		fmt.Fprintf(p.b, `<rect x="%.1f" y="%.1f" width="9" height="9" fill="%s"/><text x="%.1f" y="%.1f" fill="#333">%s</text>`, at, p.h-16, colour, at+13, p.h-8, html.EscapeString(s.name))
		at += 28 + 6*float64(len(s.name))
	}
}

// path draws a line through the points, with gaps where there are none.
func path(s span, x, y func(float64) float64) string {
	var b strings.Builder
	last := math.Inf(-1)
	for _, v := range s.points {
		switch {
		case math.IsNaN(v[1]) || v[0] > seconds:
			continue
		case v[0]-last > 1.5:
			fmt.Fprintf(&b, "M%.1f %.1f", x(v[0]), y(v[1]))
		default:
			fmt.Fprintf(&b, "L%.1f %.1f", x(v[0]), y(v[1]))
		}
		last = v[0]
	}
	return b.String()
}

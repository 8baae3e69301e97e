// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

func (u unit) String() string {
	return [...]string{number: "number", seconds: "seconds", bytes: "bytes", percent: "percent of a core", factor: "factor"}[u]
}

// write writes a figure with its unit, to three digits.
func (u unit) write(v float64) string {
	switch u {
	case seconds:
		switch a := math.Abs(v); {
		case a == 0:
			return "0"
		case a < 0.9995e-6:
			return digits(v*1e9) + " ns"
		case a < 0.9995e-3:
			return digits(v*1e6) + " µs"
		case a < 0.9995:
			return digits(v*1e3) + " ms"
		}
		return digits(v) + " s"
	case bytes:
		switch a := math.Abs(v); {
		case a < 9999.5:
			return digits(v) + " B"
		case a < 9999.5*1024:
			return digits(v/1024) + " KiB"
		}
		return digits(v/1024/1024) + " MiB"
	case percent:
		return digits(v) + " %"
	case factor:
		if v < 99.995 {
			return fmt.Sprintf("%.2f×", v)
		}
		return digits(v) + "×"
	}
	return digits(v)
}

// digits writes three significant digits, with commas: 0.85, 15.2, 76,100.
func digits(v float64) string {
	a := math.Abs(v)
	if a == 0 {
		return "0"
	}
	places := 2 - int(math.Floor(math.Log10(a)))
	scale := math.Pow10(places)
	v = math.Round(v*scale) / scale
	if v == math.Trunc(v) {
		places = 0
	}
	s := strconv.FormatFloat(v, 'f', min(max(places, 0), 4), 64)
	whole, fraction, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return whole
}

// write writes a figure of a metric.
func (r *scenarioResult) write(metric string, v float64) string {
	for _, m := range r.of.metrics {
		if m.name == metric {
			return m.unit.write(v)
		}
	}
	return digits(v)
}

// table is rows of text, the first one the heads.
type table [][]string

// table returns a row for each peer.
func (v *variantResult) table(metrics []metric) table {
	heads := []string{"peer"}
	for _, m := range metrics {
		heads = append(heads, m.head)
		if m.main {
			heads = append(heads, "min–max", "of hasp's")
		}
	}
	t := table{heads}
	for _, c := range v.Cells {
		row := []string{c.Peer}
		if c.Skipped != "" {
			t = append(t, append(row, "– "+c.Skipped))
			continue
		}
		for _, m := range metrics {
			row = append(row, written(m.unit, c.Median, m.name))
			if !m.main {
				continue
			}
			spread := ""
			if len(c.values(m.name)) > 1 {
				spread = m.unit.write(c.Min[m.name]) + "–" + m.unit.write(c.Max[m.name])
			}
			row = append(row, spread, written(factor, c.OfHasp, m.name))
		}
		t = append(t, row)
	}
	return t
}

func written(u unit, f figures, name string) string {
	v, ok := f[name]
	if !ok {
		return "–"
	}
	return u.write(v)
}

// text writes columns, the first one to the left and the others to the right.
func (t table) text(w io.Writer) {
	var widths []int
	for _, row := range t {
		if len(row) < len(t[0]) { // a remark
			continue
		}
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
			switch {
			case i == 0:
				line.WriteString("  " + cell + pad)
			case len(row) < len(t[0]):
				line.WriteString("  " + cell)
			default:
				line.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// markdown writes a table of Markdown, with its columns but the first aligned
// as rule says: "---" or "---:".
func (t table) markdown(w io.Writer, rule string) {
	for i, row := range t {
		for len(row) < len(t[0]) {
			row = append(row, "")
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|---|%s\n", strings.Repeat(rule+"|", len(row)-1))
		}
	}
}

func printScenario(w io.Writer, r *scenarioResult) {
	fmt.Fprintf(w, "\n%s  %s\n", strings.ToUpper(r.Name), r.Title)
}

func printVariant(w io.Writer, r *scenarioResult, v *variantResult) {
	fmt.Fprintf(w, "\n  %s %s\n\n", strings.ToUpper(r.Name), v.Name)
	v.table(r.of.metrics).text(w)
}

// verdicts returns the bars of the scenarios, and whether they were reached.
func (r *results) verdicts() table {
	t := table{{"", "bar", "hasp", ""}}
	for _, s := range r.Scenarios {
		for _, v := range s.Verdicts {
			said := "reached"
			switch {
			case v.Got == unmeasured:
				said = "–"
			case !v.Reached:
				said = "MISSED"
			}
			t = append(t, []string{strings.ToUpper(s.Name), v.Bar, v.Got, said})
		}
	}
	return t
}

func printVerdicts(w io.Writer, r *results) {
	t := r.verdicts()
	fmt.Fprintf(w, "\nBARS\n\n")
	for _, row := range t[1:] {
		fmt.Fprintf(w, "  %-8s %s  %s: %s\n", row[3], row[0], row[1], row[2])
	}
}

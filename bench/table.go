// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// write writes a figure with its unit, to three digits.
func (u unit) write(v float64) string {
	a := math.Abs(v)
	switch {
	case u == seconds && a == 0:
		return "0"
	case u == seconds && a < 0.9995e-6:
		return digits(v*1e9) + " ns"
	case u == seconds && a < 0.9995e-3:
		return digits(v*1e6) + " µs"
	case u == seconds && a < 0.9995:
		return digits(v*1e3) + " ms"
	case u == seconds:
		return digits(v) + " s"
	case u == bytes && a < 9999.5:
		return digits(v) + " B"
	case u == bytes && a < 9999.5*1024:
		return digits(v/1024) + " KiB"
	case u == bytes:
		return digits(v/1024/1024) + " MiB"
	case u == percent:
		return digits(v) + " %"
	case u == factor && v < 99.995:
		return fmt.Sprintf("%.2f×", v)
	case u == factor:
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

// table is rows of text, the first one the heads. A row with two cells may be a remark.
type table [][]string

// Table returns a row for each peer.
func (r *scenarioResult) Table(v *variantResult) table {
	heads := []string{"peer"}
	for _, m := range r.of.metrics {
		heads = append(heads, m.Head)
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
		for _, m := range r.of.metrics {
			row = append(row, written(m.Unit)(c.median(m.Name)))
			if !m.main {
				continue
			}
			spread := ""
			if all := c.values(m.Name); len(all) > 1 {
				spread = m.Unit.write(slices.Min(all)) + "–" + m.Unit.write(slices.Max(all))
			}
			row = append(row, spread, written(factor)(ratio(c, v.cell(baseline), m.Name)))
		}
		t = append(t, row)
	}
	return t
}

// written writes what was measured.
func written(u unit) func(v float64, ok bool) string {
	return func(v float64, ok bool) string {
		if !ok {
			return "–"
		}
		return u.write(v)
	}
}

// text writes columns, the first one to the left and the others to the right.
func (t table) text(w io.Writer) {
	first := 0
	for _, row := range t {
		first = max(first, utf8.RuneCountInString(row[0]))
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range t {
		line := fmt.Sprintf("%-*s\t%s\t", first, row[0], strings.Join(row[1:], "\t"))
		if len(row) < len(t[0]) { // what follows the last column has no width
			line = fmt.Sprintf("%-*s%s  %s", first, row[0], strings.Repeat("\t", len(t[0])), row[1])
		}
		fmt.Fprintln(out, line)
	}
	_ = out.Flush() // to the standard output
}

// Markdown returns a table of Markdown, with its columns but the first aligned
// as rule says: "---" or "---:".
func (t table) Markdown(rule string) string {
	var w strings.Builder
	for i, row := range t {
		for len(row) < len(t[0]) {
			row = append(row, "")
		}
		fmt.Fprintf(&w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&w, "|---|%s\n", strings.Repeat(rule+"|", len(row)-1))
		}
	}
	return w.String()
}

func (r *results) printBars(w io.Writer) {
	fmt.Fprintf(w, "\nBARS\n\n")
	for _, row := range r.Bars()[1:] {
		fmt.Fprintf(w, "  %-8s %s  %s: %s\n", row[3], row[0], row[1], row[2])
	}
}

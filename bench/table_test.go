// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestFiguresAreWrittenToThreeDigits(t *testing.T) {
	for _, c := range []struct {
		unit unit
		v    float64
		want string
	}{
		{number, 0, "0"},
		{number, 0.00012345, "0.0001"},
		{number, 0.8512, "0.851"},
		{number, 4, "4"},
		{number, 15.25, "15.3"},
		{number, 999.6, "1,000"},
		{number, 76123, "76,100"},
		{number, 1234567, "1,230,000"},
		{number, -1234, "-1,230"},
		{seconds, 0, "0"},
		{seconds, 110e-9, "110 ns"},
		{seconds, 0.00013749, "137 µs"},
		{seconds, 0.0014, "1.40 ms"},
		{seconds, 0.9996, "1 s"},
		{seconds, 12.345, "12.3 s"},
		{bytes, 5980, "5,980 B"},
		{bytes, 20000, "19.5 KiB"},
		{bytes, 5 << 20, "5,120 KiB"},
		{bytes, 50 << 20, "50 MiB"},
		{percent, 12.34, "12.3 %"},
		{factor, 1.004, "1.00×"},
		{factor, 915.6, "916×"},
	} {
		if got := c.unit.write(c.v); got != c.want {
			t.Errorf("%v of %v is written %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	r := toy()
	var text strings.Builder
	v := r.Variants[0]
	tab := r.Table(v)
	tab.text(&text)
	want := `  peer           rate/s  min–max  of hasp's
  hasp               90   50–100      1.00×  1 s
  redislock          30    25–50      0.50×  5 s
  redsync           7.50    5–10      0.10×  3 s
  etcd        – too many
  sync.Mutex  1,000,000           10,000×  1 µs
`
	// The second head is empty, and the columns are as wide as they must be.
	if got := squeeze(text.String()); got != squeeze(want) {
		t.Errorf("the table is\n%s\nwant\n%s", text.String(), want)
	}
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "  hasp") && strings.Index(line, " 90 ") != strings.Index(text.String(), "rate/s")+len("rate/s")-len(" 90") {
			t.Errorf("columns are not in line:\n%s", text.String())
		}
	}
	lines := strings.Split(strings.TrimSpace(tab.Markdown("---:")), "\n")
	for _, line := range lines {
		if n := strings.Count(line, "|"); n != 6 {
			t.Errorf("%d bars in %q", n, line)
		}
	}
	if len(lines) != 7 {
		t.Errorf("%d lines of Markdown", len(lines))
	}
}

// squeeze makes one space of many.
func squeeze(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

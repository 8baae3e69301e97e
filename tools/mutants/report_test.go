// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestReadSurvivors(t *testing.T) {
	reasons, err := readSurvivors(strings.NewReader("# text\n\na.go f: x -> y\n\tbecause\n\tof z\nb.go g: x -> y\n\tso\n"))
	if err != nil || fmt.Sprint(reasons) != "map[a.go f: x -> y:because of z b.go g: x -> y:so]" {
		t.Error(reasons, err)
	}
	for _, bad := range []string{"a.go f: x -> y\n", "a.go f: x -> y\nb.go g: x -> y\n\tso\n", "\tso\n", "a: b\n\tso\na: b\n\tso\n"} {
		if _, err := readSurvivors(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is right", bad)
		}
	}
}

// reported is the report on killed and surviving mutants of whole packages.
func reported(w io.Writer, reasons map[string]string, killed, survived int) *report {
	r := newReport(w, reasons)
	r.whole = true
	for i := range killed + survived {
		m := mutant{id: i, file: "a.go", in: "f", change: fmt.Sprint(i)}
		r.expect([]mutant{m})
		v := verdict{mutant: m}
		if i < killed {
			v.by = "TestA"
		}
		r.add(".", v)
	}
	return r
}

func TestScore(t *testing.T) {
	excused := map[string]string{"a.go f: 19": "so"}
	stale := map[string]string{"a.go f: 19": "so", "a.go f: x": "so"}
	for _, c := range []struct {
		name             string
		reasons          map[string]string
		killed, survived int
		whole, good      bool
		says             string
	}{
		{"all killed", nil, 20, 0, true, true, "| **all** | 20 | 20 | 0 | 0 | 0 | 100.0 % |"},
		{"no reason", nil, 19, 1, true, false, "| `.` | 20 | 19 | 0 | 0 | 1 | 95.0 % |"},
		{"a reason", excused, 19, 1, true, true, "| `.` | 20 | 19 | 0 | 1 | 0 | 95.0 % |"},
		{"too few", map[string]string{"a.go f: 18": "so", "a.go f: 19": "so"}, 18, 2, true, false, "less than 95 %"},
		{"too few of a file", map[string]string{"a.go f: 18": "so", "a.go f: 19": "so"}, 18, 2, false, true, "90.0 %"},
		{"gone", stale, 19, 1, true, false, "not a mutant any more: a.go f: x"},
		{"of another file", map[string]string{"b.go f: x": "so"}, 20, 0, true, true, ""},
		{"killed by now", excused, 20, 0, true, true, "but killed by TestA: a.go:0 f: 19"},
	} {
		var b strings.Builder
		r := reported(&b, c.reasons, c.killed, c.survived)
		r.whole = c.whole
		if good := r.print(); good != c.good || !strings.Contains(b.String(), c.says) {
			t.Errorf("%s: good is %v, of\n%s", c.name, good, b.String())
		}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
)

// What correctness takes is said in the same words wherever somebody decides by it.
func TestCorrectnessIsOneSentence(t *testing.T) {
	for _, name := range []string{"README.md", "docs/guarantees.md", "cmd/hasp/internal/operate/help/doctor.txt"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", filepath.FromSlash(name)))
		if err != nil || !strings.Contains(strings.Join(strings.Fields(string(text)), " "), Correctness) {
			t.Errorf("%s does not have %q: %v", name, Correctness, err)
		}
	}
}

func TestFit(t *testing.T) {
	server := driver.Traits{Fencing: true, Survives: driver.StoreRestart}
	repeats := Finding{Level: Warn, Check: "fsync", Text: "fsync is off: a crash loses commits. Run: x", FencesRepeat: true}
	away := Finding{Level: Fail, Check: "answers", Text: "it cannot be reached: refused. Does it run?"}
	for name, c := range map[string]struct {
		traits driver.Traits
		kind   Kind
		found  []Finding
		silent bool
		want   Use
		lacks  string // asked for fences
	}{
		"a server":        {traits: server, want: ForFences},
		"warnings":        {traits: server, found: []Finding{{Level: Warn, Check: "persistence"}}, want: ForFences},
		"fences repeat":   {traits: server, found: []Finding{repeats}, want: ForEfficiency, lacks: "not for efficiency with fences: fences may repeat or go back until you mend: fsync is off"},
		"repeats, but ok": {traits: server, found: []Finding{{Level: OK, Check: "fsync", FencesRepeat: true}}, want: ForFences},
		"no fences":       {kind: Kind{NoFences: ". Change that"}, want: ForEfficiency, lacks: "paused. Change that"},
		"fails": {traits: server, found: []Finding{away, {Level: OK, Text: "it is well"}, away, {Level: Fail, Text: "held back, 9s left. Wait"}}, want: ForNothing,
			lacks: "not for efficiency: first mend: it cannot be reached; held back, 9s left"},
		"fails at length": {traits: server, found: []Finding{{Level: Fail, Text: strings.Repeat("ö", 101)}}, want: ForNothing,
			lacks: "first mend: " + strings.Repeat("ö", 99) + "…"},
		"grants nothing": {traits: server, silent: true, want: ForNothing, lacks: "it grants no locks now"},
	} {
		best, all := Fit(c.traits, c.kind, c.found, !c.silent)
		if best != c.want || len(all) != len(Uses) {
			t.Errorf("%s: for %s, %+v; want %s", name, best, all, c.want)
		}
		for i, f := range all {
			if f.Use != Uses[i] || f.Why == "" {
				t.Errorf("%s: %+v", name, f)
			}
			lacks := Lacks(all, f.Use)
			if f.Met != (lacks == "") {
				t.Errorf("%s: of %s it lacks %q", name, f.Use, lacks)
			}
		}
		if lacks := Lacks(all, ForFences); !strings.Contains(lacks, c.lacks) || (lacks == "") != (c.lacks == "") {
			t.Errorf("%s: it lacks %q, want %q", name, lacks, c.lacks)
		}
		if lacks := Lacks(all, ForCorrectness); !strings.Contains(lacks, cmp.Or(c.lacks, Correctness)) {
			t.Errorf("%s: for correctness it lacks %q", name, lacks)
		}
		if Lacks(all, "") != "" {
			t.Errorf("%s: it lacks what nobody asked for", name)
		}
	}
}

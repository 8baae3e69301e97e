// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hasplock/hasp/driver"
)

// Use is what locks may be used for. Each but the first includes those before it.
type Use string

// The uses, as docs/guarantees.md has them.
const (
	ForNothing     Use = "nothing"
	ForEfficiency  Use = "efficiency"  // the work is hardly ever done twice
	ForFences      Use = "fences"      // and a guard that compares the fence takes no late write
	ForCorrectness Use = "correctness" // data is never damaged: no store gives that without the guard
)

// Correctness is what it takes, besides fences: README, docs/guarantees.md and the help say the same.
const Correctness = "no store alone: a holder that was stopped writes late, unless a guard compares the fence"

// Uses are those that can be asked for, in order.
var Uses = []Use{ForEfficiency, ForFences, ForCorrectness}

// Fitness says whether a store is fit for a use, and why; if not, what to change.
type Fitness struct {
	Use Use    `json:"use"`
	Met bool   `json:"met"`
	Why string `json:"why"`
}

// Fit judges by what the engine promises, and by what was found: the most that a store
// may be used for, and all uses one by one.
//
// Where it does not grant locks now it is fit for nothing: granted is false.
func Fit(t driver.Traits, k Kind, found []Finding, granted bool) (Use, []Fitness) {
	if !granted {
		found = append(slices.Clone(found), Finding{Level: Fail})
	}
	all := []Fitness{efficient(found), fenced(t, k, found), {Use: ForCorrectness, Why: Correctness + ". Compare it where you write (docs/guards.md)"}}
	met := []string{
		"locks are granted, handed on, and free again when they expire: work is hardly ever done twice",
		"data stays correct where a guard in what you write to compares the fence (HASP_FENCE)",
	}
	best := ForNothing
	for i, f := range all {
		if f.Why == "" {
			best, all[i].Met, all[i].Why = f.Use, true, met[i]
		}
	}
	return best, all
}

// efficient, and the others, leave Why empty where nothing is in the way.
func efficient(found []Finding) Fitness {
	f := Fitness{Use: ForEfficiency}
	if failed := checks(found, func(f Finding) bool { return f.Level == Fail }); failed != "" {
		f.Why = "first mend: " + failed
	} else if slices.ContainsFunc(found, func(f Finding) bool { return f.Level == Fail }) {
		f.Why = "it grants no locks now"
	}
	return f
}

func fenced(t driver.Traits, k Kind, found []Finding) Fitness {
	f := Fitness{Use: ForFences}
	switch repeat := checks(found, func(f Finding) bool { return f.Level != OK && f.FencesRepeat }); {
	case efficient(found).Why != "":
		f.Why = efficient(found).Why
	case !t.Fencing:
		f.Why = "these locks have no fences, so nothing can refuse the late write of a holder that was paused" + k.NoFences
	case repeat != "":
		f.Why = "fences may repeat or go back until you mend: " + repeat
	}
	return f
}

// checks repeats how the lines of those findings begin for which is holds, each once.
func checks(found []Finding, is func(Finding) bool) string {
	var lines []string
	for _, f := range found {
		line := cmp.Or(Beginning(f.Text), f.Check)
		if r := []rune(line); len(r) > 100 {
			line = string(r[:99]) + "…"
		}
		if is(f) && line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// Beginning is what a text says before it says why, and what to do.
func Beginning(text string) string {
	for _, end := range []string{": ", ". "} {
		text, _, _ = strings.Cut(text, end)
	}
	return text
}

// Words are how a person reads it.
func (u Use) Words() string {
	if u == ForFences {
		return "efficiency with fences"
	}
	return string(u)
}

// Lacks is the sentence about a store that is not fit for what was asked for; "" when it is.
func Lacks(all []Fitness, asked Use) string {
	if asked == "" {
		return ""
	}
	for _, f := range all[:slices.Index(Uses, asked)+1] {
		if !f.Met {
			return fmt.Sprintf("not for %s: %s", f.Use.Words(), f.Why)
		}
	}
	return ""
}

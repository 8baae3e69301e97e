// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// least is how much of the mutants has to be killed.
const least = 95 // percent

// report collects what became of the mutants.
type report struct {
	w       io.Writer
	reasons map[string]string  // of the list of survivors
	whole   bool               // the score is that of whole packages
	before  map[string]verdict // of the last report, by key

	mu       sync.Mutex
	verdicts map[string][]verdict // by package
	packages []string             // in their order
	files    map[string]bool      // those of which all mutants are known
	known    map[string]bool      // keys
}

func newReport(w io.Writer, reasons map[string]string) *report {
	return &report{w: w, reasons: reasons, verdicts: map[string][]verdict{}, files: map[string]bool{}, known: map[string]bool{}}
}

// expect notes which mutants there are.
func (r *report) expect(mutants []mutant) {
	for _, m := range mutants {
		r.files[m.file] = true
		r.known[m.key()] = true
	}
}

func (r *report) add(pkg string, v verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verdicts[pkg] == nil {
		r.packages = append(r.packages, pkg)
	}
	r.verdicts[pkg] = append(r.verdicts[pkg], v)
	if v.by == "" && r.reasons[v.key()] == "" {
		fmt.Fprintln(r.w, r.line(v))
	}
}

// left takes over what the last report has as killed, and returns the other mutants.
func (r *report) left(pkg string, mutants []mutant) []mutant {
	var left []mutant
	for _, m := range mutants {
		if v, killed := r.before[m.key()]; killed {
			v.mutant = m
			r.add(pkg, v)
		} else {
			left = append(left, m)
		}
	}
	return left
}

func (r *report) line(v verdict) string {
	switch {
	case v.timeout:
		return fmt.Sprintf("killed by the time-out of %s: %s", v.by, v)
	case v.by != "":
		return fmt.Sprintf("killed by %s: %s", v.by, v)
	case r.reasons[v.key()] != "":
		return fmt.Sprintf("survives with a reason: %s", v)
	case v.unmet:
		return fmt.Sprintf("NOT REACHED: %s", v)
	}
	return fmt.Sprintf("SURVIVED: %s", v)
}

// save writes a line for each mutant.
func (r *report) save(file string) error {
	var b strings.Builder
	for _, p := range r.packages {
		slices.SortFunc(r.verdicts[p], func(x, y verdict) int { return cmp.Compare(x.id, y.id) })
		for _, v := range r.verdicts[p] {
			fmt.Fprintln(&b, r.line(v))
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// again moves those that survived in a saved report to the front.
func again(file string, mutants []mutant) error {
	text, err := os.ReadFile(file)
	survived := map[string]bool{}
	for _, m := range survivedLine.FindAllStringSubmatch(string(text), -1) {
		survived[m[1]+m[2]] = true
	}
	some := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !survived[m.key()] })
	others := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return survived[m.key()] })
	copy(mutants, append(some, others...))
	return err
}

var survivedLine = regexp.MustCompile(`(?m)^(?:SURVIVED|survives with a reason): (\S+):\d+( .*)$`)

var killedLine = regexp.MustCompile(`(?m)^killed by (the time-out of )?(\S+): (\S+):\d+( .*)$`)

// killedBefore are the verdicts on the mutants that a saved report has as killed.
func killedBefore(file string) (map[string]verdict, error) {
	text, err := os.ReadFile(file)
	before := map[string]verdict{}
	for _, m := range killedLine.FindAllStringSubmatch(string(text), -1) {
		before[m[3]+m[4]] = verdict{by: m[2], timeout: m[1] != ""}
	}
	return before, err
}

// tally counts verdicts.
type tally struct{ all, killed, timeout, excused, survived int }

func (t *tally) count(r *report, v verdict) {
	t.all++
	switch {
	case v.timeout:
		t.timeout++
		t.killed++
	case v.by != "":
		t.killed++
	case r.reasons[v.key()] != "":
		t.excused++
	default:
		t.survived++
	}
}

func (t tally) row(name string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %.1f %% |",
		name, t.all, t.killed, t.timeout, t.excused, t.survived, 100*float64(t.killed)/float64(max(t.all, 1)))
}

// print writes the score as a table. It is false when that is too low, or the list of
// survivors is not right.
func (r *report) print() (good bool) {
	var total tally
	fmt.Fprintln(r.w, "\n| package | mutants | killed | of these by time-out | survive with a reason | without | score |\n|---|--:|--:|--:|--:|--:|--:|")
	for _, p := range r.packages {
		var t tally
		for _, v := range r.verdicts[p] {
			t.count(r, v)
			total.count(r, v)
		}
		fmt.Fprintln(r.w, t.row("`"+p+"`"))
	}
	fmt.Fprintln(r.w, total.row("**all**"))
	good = total.survived == 0
	for _, key := range r.stale() {
		good = false
		fmt.Fprintln(r.w, "on the list of survivors, but not a mutant any more:", key)
	}
	for _, p := range r.packages {
		for _, v := range r.verdicts[p] {
			if v.by != "" && r.reasons[v.key()] != "" {
				fmt.Fprintf(r.w, "on the list of survivors, but killed by %s: %s\n", v.by, v)
			}
		}
	}
	if r.whole && total.killed*100 < least*total.all {
		good = false
		fmt.Fprintf(r.w, "less than %d %% were killed\n", least)
	}
	return good
}

// stale are the entries of the list without a mutant.
func (r *report) stale() []string {
	var keys []string
	for key := range r.reasons {
		file, _, _ := strings.Cut(key, " ")
		if r.files[file] && r.whole && !r.known[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

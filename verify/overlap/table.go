// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// results are the outcomes of all runs.
type results struct {
	subjects []*subject
	of       map[*subject]map[fault][]outcome
}

func newResults(subjects []*subject) *results {
	a := &results{subjects: subjects, of: make(map[*subject]map[fault][]outcome)}
	for _, s := range subjects {
		a.of[s] = make(map[fault][]outcome)
	}
	return a
}

func (a *results) add(s *subject, f fault, o outcome) { a.of[s][f] = append(a.of[s][f], o) }

// table is a row for each lock.
func (a *results) table() string {
	var b strings.Builder
	b.WriteString("| lock | what its holder asks | partition | pause | clock of the server + 1 min |\n|---|---|--:|--:|--:|\n")
	for _, s := range a.subjects {
		fmt.Fprintf(&b, "| %s | %s |", s.name, s.signal)
		for _, f := range faults {
			fmt.Fprintf(&b, " %s |", cell(a.of[s][f]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// cell is the median and the largest overlap of some runs, in milliseconds.
func cell(runs []outcome) string {
	if len(runs) == 0 {
		return "-"
	}
	over, granted := 0, false
	for _, o := range runs {
		granted = granted || o.granted
		if o.overlap > 0 {
			over++
		}
	}
	switch {
	case !granted:
		return "**0**, refused"
	case over == 0:
		return "**0**"
	}
	sorted := slices.SortedFunc(slices.Values(runs), func(x, y outcome) int { return cmp.Compare(x.overlap, y.overlap) })
	median, most := ms(sorted[len(runs)/2]), ms(sorted[len(runs)-1])
	text := median
	if most != median {
		text = fmt.Sprintf("%s, at most %s", median, most)
	}
	if over < len(runs) {
		text += fmt.Sprintf(" (in %d of %d)", over, len(runs))
	}
	return text
}

func ms(o outcome) string {
	v := float64(o.overlap) / float64(time.Millisecond)
	switch {
	case o.whole:
		return fmt.Sprintf("all %.0f s", watch.Seconds())
	case v == 0:
		return "0"
	case v < 0.1:
		return "< 0.1"
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// verdict is an error where hasp overlapped under a fault that must not let it.
func (a *results) verdict() error {
	var errs []error
	for _, s := range a.subjects {
		for _, f := range []fault{partition, pause} {
			overlapped := slices.ContainsFunc(a.of[s][f], func(o outcome) bool { return o.overlap > 0 })
			if s.exact && overlapped {
				errs = append(errs, fmt.Errorf("%s overlapped under %s, for %s ms", s.name, f, cell(a.of[s][f])))
			}
		}
	}
	return errors.Join(errs...)
}

// heading says when and how it was measured.
func heading(n, side int, took time.Duration) string {
	load := "of unknown load"
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = "with a load of " + strings.Fields(string(b))[1] // of the last five minutes
	}
	return fmt.Sprintf("%s: %d runs of each, %d at once, in %v, on %d processors %s (%s; %s):",
		time.Now().UTC().Format(time.DateOnly), n, side, took.Round(time.Second), runtime.NumCPU(), load, runtime.Version(), versions())
}

// versions are those of the other libraries.
func versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "versions unknown"
	}
	var all []string
	for _, m := range info.Deps {
		for _, name := range []string{"redsync", "redislock", "rueidis", "etcd/client/v3", "go-zookeeper/zk", "go-redis"} {
			if strings.Contains(m.Path, name) {
				all = append(all, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
			}
		}
	}
	return strings.Join(all, ", ")
}

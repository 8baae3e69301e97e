// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// schema is the version of results.json.
const schema = 1

// summaryBegin and summaryEnd are the lines of performance.md between which make bench writes.
const (
	summaryBegin = "<!-- bench:summary:begin -->"
	summaryEnd   = "<!-- bench:summary:end -->"
)

// save writes the summary into performance.md, and results/benchmarks.md, results/benchmarks.json and
// the pictures, all in dir.
func (r *results) save(dir string) error {
	files := filepath.Join(dir, "results")
	if err := os.MkdirAll(files, 0o777); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// A line for each named value, so that diffs can be read.
	lines := strings.NewReplacer(`{"name":`, "\n"+`{"name":`, `{"peer":`, "\n"+`{"peer":`).Replace(string(data))
	if err := os.WriteFile(filepath.Join(files, "benchmarks.json"), []byte(lines+"\n"), 0o666); err != nil {
		return err
	}
	for _, s := range r.Scenarios {
		for _, c := range s.of.curves {
			if err := os.WriteFile(filepath.Join(files, c.file(s)), []byte(s.draw(c)), 0o666); err != nil {
				return err
			}
		}
	}
	if err := os.WriteFile(filepath.Join(files, "benchmarks.md"), []byte(r.markdown()), 0o666); err != nil {
		return err
	}
	page := filepath.Join(dir, "performance.md")
	old, err := os.ReadFile(page)
	if errors.Is(err, os.ErrNotExist) {
		old, err = []byte("# Performance\n\n"+summaryBegin+"\n"+summaryEnd+"\n"), nil
	}
	if err != nil {
		return err
	}
	text, err := splice(string(old), r.summary())
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o666)
}

// splice puts the summary into performance.md.
func splice(page, summary string) (string, error) {
	before, rest, ok := strings.Cut(page, summaryBegin)
	_, after, found := strings.Cut(rest, summaryEnd)
	if !ok || !found {
		return "", fmt.Errorf("it has no lines %s and %s", summaryBegin, summaryEnd)
	}
	return before + summaryBegin + "\n\n" + summary + "\n" + summaryEnd + after, nil
}

// markdown returns results/benchmarks.md.
func (r *results) markdown() string {
	var w strings.Builder
	w.WriteString("# Benchmarks\n\nEvery figure of the latest run of `make bench`, which writes this page; [performance.md](../performance.md) says how it was measured, and what it means.\n\n")
	m := r.Machine
	fmt.Fprintf(&w, "Measured on %s, in %.0f minutes", r.Started.UTC().Format("2006-01-02 15:04 UTC"), r.Seconds/60)
	if r.Quick {
		w.WriteString(" (**a quick trial: figures of one short round, not meaningful**)")
	}
	fmt.Fprintf(&w, ": %s, %d cores, %s, %s, %s, Redis %s", m.CPU, m.Cores, m.OS, m.Kernel, m.Go, m.Redis)
	if m.Etcd != "" {
		fmt.Fprintf(&w, ", etcd %s", m.Etcd)
	}
	fmt.Fprintf(&w, "; hasp %s; load before %s. Every figure of every round: [benchmarks.json](benchmarks.json).\n", m.Revision, m.Load)

	if len(r.Failures) > 0 {
		fmt.Fprintf(&w, "\n**%d rounds failed:**\n\n", len(r.Failures))
		for _, f := range r.Failures {
			fmt.Fprintf(&w, "- %s\n", strings.ReplaceAll(f, "\n", "; "))
		}
	}

	w.WriteString("\n## Bars\n\n")
	r.verdicts().markdown(&w, "---")

	w.WriteString("\n## Peers\n\n")
	t := table{{"peer", "version", "configured"}}
	for _, p := range r.Peers {
		t = append(t, []string{p.Name, p.Version, p.Config})
	}
	t.markdown(&w, "---")

	for _, s := range r.Scenarios {
		fmt.Fprintf(&w, "\n## %s: %s\n\n%s\n", strings.ToUpper(s.Name), s.Title, s.About)
		for _, c := range s.of.curves {
			fmt.Fprintf(&w, "\n![%s](%s)\n", c.title, c.file(s))
		}
		for _, v := range s.Variants {
			fmt.Fprintf(&w, "\n### %s, %s\n\n", strings.ToUpper(s.Name), v.Name)
			v.table(s.of.metrics).markdown(&w, "---:")
		}
	}
	return w.String()
}

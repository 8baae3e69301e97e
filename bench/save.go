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

// marks are the two lines of performance.md between which make bench writes.
type marks struct{ begin, end string }

var (
	summaryMarks = marks{"<!-- bench:summary:begin -->", "<!-- bench:summary:end -->"}
	tableMarks   = marks{"<!-- bench:begin -->", "<!-- bench:end -->"}
)

// save writes performance/results.json, the pictures, and the tables into
// performance.md, all in dir.
func (r *results) save(dir string) error {
	files := filepath.Join(dir, "performance")
	if err := os.MkdirAll(files, 0o777); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// A line for each named value, so that diffs can be read.
	lines := strings.NewReplacer(`{"name":`, "\n"+`{"name":`, `{"peer":`, "\n"+`{"peer":`).Replace(string(data))
	if err := os.WriteFile(filepath.Join(files, "results.json"), []byte(lines+"\n"), 0o666); err != nil {
		return err
	}
	for _, s := range r.Scenarios {
		for _, c := range s.of.curves {
			if err := os.WriteFile(filepath.Join(files, c.file(s)), []byte(s.draw(c)), 0o666); err != nil {
				return err
			}
		}
	}
	page := filepath.Join(dir, "performance.md")
	old, err := os.ReadFile(page)
	if errors.Is(err, os.ErrNotExist) {
		old, err = []byte("# Performance\n\n"+summaryMarks.empty()+"\n"+tableMarks.empty()), nil
	}
	if err != nil {
		return err
	}
	text, err := summaryMarks.splice(string(old), r.summary())
	if err == nil {
		text, err = tableMarks.splice(text, r.markdown())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o666)
}

func (m marks) empty() string { return m.begin + "\n" + m.end + "\n" }

// splice puts text between the marks.
func (m marks) splice(page, text string) (string, error) {
	before, rest, ok := strings.Cut(page, m.begin)
	_, after, found := strings.Cut(rest, m.end)
	if !ok || !found {
		return "", fmt.Errorf("it has no lines %s and %s", m.begin, m.end)
	}
	return before + m.begin + "\n\n" + text + "\n" + m.end + after, nil
}

// markdown returns the part of performance.md that is made from the results.
func (r *results) markdown() string {
	var w strings.Builder
	m := r.Machine
	fmt.Fprintf(&w, "Measured on %s, in %.0f minutes", r.Started.UTC().Format("2006-01-02 15:04 UTC"), r.Seconds/60)
	if r.Quick {
		w.WriteString(" (**a quick trial: figures of one short round, not meaningful**)")
	}
	fmt.Fprintf(&w, ": %s, %d cores, %s, %s, %s, Redis %s", m.CPU, m.Cores, m.OS, m.Kernel, m.Go, m.Redis)
	if m.Etcd != "" {
		fmt.Fprintf(&w, ", etcd %s", m.Etcd)
	}
	fmt.Fprintf(&w, "; hasp %s; load before %s. Every figure of every round: [results.json](performance/results.json).\n", m.Revision, m.Load)

	if len(r.Failures) > 0 {
		fmt.Fprintf(&w, "\n**%d rounds failed:**\n\n", len(r.Failures))
		for _, f := range r.Failures {
			fmt.Fprintf(&w, "- %s\n", strings.ReplaceAll(f, "\n", "; "))
		}
	}

	w.WriteString("\n### Bars\n\n")
	r.verdicts().markdown(&w, "---")

	w.WriteString("\n### Peers\n\n")
	t := table{{"peer", "version", "configured"}}
	for _, p := range r.Peers {
		t = append(t, []string{p.Name, p.Version, p.Config})
	}
	t.markdown(&w, "---")

	for _, s := range r.Scenarios {
		fmt.Fprintf(&w, "\n### %s: %s\n\n%s\n", strings.ToUpper(s.Name), s.Title, s.About)
		for _, c := range s.of.curves {
			fmt.Fprintf(&w, "\n![%s](performance/%s)\n", c.title, c.file(s))
		}
		for _, v := range s.Variants {
			fmt.Fprintf(&w, "\n#### %s, %s\n\n", strings.ToUpper(s.Name), v.Name)
			v.table(s.of.metrics).markdown(&w, "---:")
		}
	}
	return w.String()
}

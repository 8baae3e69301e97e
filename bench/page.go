// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// summaryBegin and summaryEnd are the lines of performance.md between which make bench writes.
const (
	summaryBegin = "<!-- bench:summary:begin -->"
	summaryEnd   = "<!-- bench:summary:end -->"
)

// save writes the summary into performance.md, and results/benchmarks.md, results/benchmarks.json and
// the pictures, all in dir.
func (r *results) save(dir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// A line for each named value, so that diffs can be read.
	lines := strings.NewReplacer(`{"name":`, "\n"+`{"name":`, `{"peer":`, "\n"+`{"peer":`).Replace(string(data))
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
	files := map[string]string{page: text}
	put := func(name, text string) { files[filepath.Join(dir, "results", name)] = text }
	put("benchmarks.json", lines+"\n")
	put("benchmarks.md", r.markdown())
	for _, s := range r.Scenarios {
		for _, p := range s.Pictures() {
			put(p.File, p.draw())
		}
	}
	errs := []error{os.MkdirAll(filepath.Join(dir, "results"), 0o777)}
	for name, text := range files {
		errs = append(errs, os.WriteFile(name, []byte(text), 0o666))
	}
	return errors.Join(errs...)
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

//go:embed benchmarks.md.tmpl
var pageText string

var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"upper": strings.ToUpper,
	"line":  func(s string) string { return strings.ReplaceAll(s, "\n", "; ") },
}).Parse(pageText))

// markdown returns results/benchmarks.md.
func (r *results) markdown() string { return filled(pageTemplate, r) }

func filled(t *template.Template, data any) string {
	var w strings.Builder
	if err := t.Execute(&w, data); err != nil {
		panic(err) // the template is wrong
	}
	return w.String()
}

// Minutes is how long the run took, for the page.
func (r *results) Minutes() float64 { return r.Seconds / 60 }

// Bars returns the bars of the scenarios, and whether they were reached.
func (r *results) Bars() table {
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

// Configured returns how each peer was configured.
func (r *results) Configured() table {
	t := table{{"peer", "version", "configured"}}
	for _, p := range r.Peers {
		t = append(t, []string{p.Name, p.Version, p.Config})
	}
	return t
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json, see go doc test2json.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build event
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // the ImportPath that did not compile
}

// report counts tests, and prints packages and failures as they become known.
type report struct {
	out            io.Writer
	passed, failed int
	failures       []string
	skipped        []string
	builds         map[string]string // the compiler's output, by ImportPath
	pkgs           map[string]*pkg
}

// pkg is a package whose tests run.
type pkg struct {
	tests  map[string]*test
	output []string // output that belongs to no test
	passed int
	failed int
}

// test is a test that runs, or has run.
type test struct {
	output    []string
	parent    bool // has subtests, which are counted instead
	subFailed bool
	ended     bool
}

func newReport(out io.Writer) *report {
	return &report{out: out, builds: make(map[string]string), pkgs: make(map[string]*pkg)}
}

// read reads the output of one go test -json. Lines that are not JSON are passed on.
func (r *report) read(in io.Reader) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(r.out, lines.Text())
			continue
		}
		r.take(e)
	}
	if err := lines.Err(); err != nil {
		r.fail("go test", err.Error())
	}
}

func (r *report) take(e event) {
	if e.Package == "" { // a build event
		r.builds[e.ImportPath] += e.Output
		return
	}
	p := r.pkgs[e.Package]
	if p == nil {
		p = &pkg{tests: make(map[string]*test)}
		r.pkgs[e.Package] = p
	}
	if e.Test == "" {
		r.takePackage(p, e)
		return
	}
	t := p.test(e.Test)
	switch t.ended = e.Action == "pass" || e.Action == "skip" || e.Action == "fail"; e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass":
		if !t.parent {
			p.passed++
		}
	case "skip":
		r.skipped = append(r.skipped, e.Package+" "+e.Test+reason(t.output))
	case "fail":
		r.takeFailure(p, t, e)
	}
}

// test returns the test with a name, and registers it with its parent.
func (p *pkg) test(name string) *test {
	t := p.tests[name]
	if t == nil {
		t = &test{}
		p.tests[name] = t
		if up := p.above(name); up != nil {
			up.parent = true
		}
	}
	return t
}

// above returns the test that a subtest belongs to, nil for a test at the top.
// The name of a subtest may contain slashes itself.
func (p *pkg) above(name string) *test {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if t := p.tests[name[:i]]; t != nil {
			return t
		}
	}
	return nil
}

// takeFailure counts a failing test. One whose subtest failed has been counted
// with it.
func (r *report) takeFailure(p *pkg, t *test, e event) {
	if up := p.above(e.Test); up != nil {
		up.subFailed = true
	}
	fmt.Fprintf(r.out, "\n%s", strings.Join(t.output, ""))
	if !t.subFailed {
		p.failed++
		r.failures = append(r.failures, e.Package+" "+e.Test+cause(t.output))
	}
}

func (r *report) takePackage(p *pkg, e event) {
	took := time.Duration(e.Elapsed * float64(time.Second)).Round(10 * time.Millisecond)
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
		return
	case "pass":
		fmt.Fprintf(r.out, "ok    %-55s %5d passed  %v\n", e.Package, p.passed, took)
	case "skip": // no test files
	case "fail":
		fmt.Fprint(r.out, "\n", r.builds[e.FailedBuild], strings.Join(p.output, ""))
		cut := p.unfinished()
		if len(cut) > 0 {
			p.failed++
			output := p.output
			for _, name := range slices.Concat(p.crashed(), cut) {
				fmt.Fprint(r.out, strings.Join(p.tests[name].output, ""))
				output = append(output, p.tests[name].output...)
			}
			r.failures = append(r.failures, e.Package+" ended in "+strings.Join(cut, ", ")+cause(output))
		} else if p.failed == 0 {
			p.failed++
			r.failures = append(r.failures, e.Package)
		}
		fmt.Fprintf(r.out, "FAIL  %-55s %5d passed  %d failed  %v\n", e.Package, p.passed, p.failed, took)
	default:
		return
	}
	r.passed += p.passed
	r.failed += p.failed
	delete(r.pkgs, e.Package)
}

// cause returns what a failed test, or a program that ended, said first: of why, as a rule.
func cause(output []string) string {
	var lines []string
	for _, line := range output {
		text := strings.TrimSpace(line)
		said := strings.Contains(text, "_test.go:") || strings.Contains(text, ".go:") && strings.HasPrefix(line, "    ")
		if (said || crashes(text)) && len(lines) < 3 {
			lines = append(lines, text[:min(len(text), 200)])
		}
	}
	if lines == nil {
		return ""
	}
	return ": " + strings.Join(lines, " | ")
}

// crashes says whether a line tells how the program ended.
func crashes(text string) bool {
	for _, start := range []string{"panic: ", "fatal error: ", "signal: ", "*** Test killed", "WARNING: DATA RACE"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return false
}

// crashed returns the tests that passed, and whose output has the end of the program nevertheless: go takes what
// comes after a test's result for its output.
func (p *pkg) crashed() []string {
	var names []string
	for name, t := range p.tests {
		if t.ended && slices.ContainsFunc(t.output, crashes) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// unfinished returns the tests that were cut off, for example by the time limit.
func (p *pkg) unfinished() []string {
	var names []string
	for name, t := range p.tests {
		if !t.ended {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fail counts a failure that belongs to no test.
func (r *report) fail(what, why string) {
	r.failed++
	r.failures = append(r.failures, what)
	fmt.Fprintf(r.out, "FAIL  %s: %s\n", what, why)
}

func (r *report) summary() {
	list := func(title string, names []string) {
		if len(names) > 0 {
			fmt.Fprintf(r.out, "\n%d %s:\n  %s\n", len(names), title, strings.Join(names, "\n  "))
		}
	}
	list("SKIPPED", r.skipped)
	list("FAILED", r.failures)
	fmt.Fprintf(r.out, "\n%d passed, %d failed\n", r.passed, r.failed)
}

// reason returns why a test was skipped, from its output.
func reason(output []string) string {
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return ": " + line
		}
	}
	return ""
}

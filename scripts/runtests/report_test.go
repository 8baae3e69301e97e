// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// testdata/mixed.json is the output of go test -json for seven packages: good,
// failing, panicking, timed out, one that does not compile, one whose TestMain
// exits with 3, and one without tests.
func TestReportOfEveryEnd(t *testing.T) {
	in, err := os.Open("testdata/mixed.json")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out bytes.Buffer
	r := newReport(&out)
	r.read(in)
	r.summary()

	slices.Sort(r.failures)
	want := []string{
		"example.com/rt/bad TestA/x: a_test.go:3: boo",
		"example.com/rt/bad TestB: a_test.go:4: parent boo",
		"example.com/rt/broken",
		"example.com/rt/exits",
		"example.com/rt/panics TestX: panic: ouch [recovered, repanicked]",
		"example.com/rt/slow ended in TestX: panic: test timed out after 2s",
	}
	if !slices.Equal(r.failures, want) {
		t.Errorf("failures %q, want %q", r.failures, want)
	}
	for _, text := range []string{
		"a_test.go:3: boo\n",             // of a failing test
		"broken/a.go:1:29: cannot use",   // of the compiler
		"leak!\n",                        // of TestMain
		"panic: ouch",                    // of a panic
		"panic: test timed out after 2s", // of the time limit
		"1 SKIPPED:\n  example.com/rt/good TestSkip: a_test.go:4: no server\n",
	} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the report lacks %q", text)
		}
	}
	if last := "\n7 passed, 6 failed\n"; !strings.HasSuffix(out.String(), last) {
		t.Errorf("the report does not end in %q", last)
	}
	if t.Failed() {
		t.Logf("the report:\n%s", out.String())
	}
}

// What go prints before the first event is shown, not dropped.
func TestReportPassesOtherLinesOn(t *testing.T) {
	var out bytes.Buffer
	newReport(&out).read(strings.NewReader("go: cannot find main module\n"))
	if out.String() != "go: cannot find main module\n" {
		t.Errorf("got %q", out.String())
	}
}

// A folder without a module that go test can start with is a failure, also beside a good
// one.
func TestRunCountsWhatCannotStart(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	run(r, []string{t.TempDir()}, nil)
	if r.failed != 1 || r.passed != 0 {
		t.Errorf("%d passed, %d failed; want 0 and 1\n%s", r.passed, r.failed, out.String())
	}
	run(r, []string{".", "./no/such/folder"}, []string{"-run", "^TestReportOfEveryEnd$"})
	if r.failed != 2 {
		t.Errorf("%d failed, want 2\n%s", r.failed, out.String())
	}
}

// go takes the end of a program for the output of the test that passed last.
func TestReportOfAnEndInAnother(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	r.read(strings.NewReader(`{"Action":"run","Package":"p","Test":"TestHangs"}
{"Action":"output","Package":"p","Test":"TestPasses","Output":"--- PASS: TestPasses (0.00s)\n"}
{"Action":"output","Package":"p","Test":"TestPasses","Output":"panic: test timed out after 2s\n"}
{"Action":"pass","Package":"p","Test":"TestPasses"}
{"Action":"fail","Package":"p"}
`))
	if want := []string{"p ended in TestHangs: panic: test timed out after 2s"}; !slices.Equal(r.failures, want) {
		t.Errorf("failures %q, want %q", r.failures, want)
	}
	if !strings.Contains(out.String(), "panic: test timed out") {
		t.Errorf("the report lacks the panic:\n%s", out.String())
	}
}

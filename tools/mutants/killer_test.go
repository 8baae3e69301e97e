// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"testing"
	"time"
)

// Quick tests share a process, slow ones and subtests have their own.
func TestBatches(t *testing.T) {
	ms := time.Millisecond
	var tests []test
	for i, took := range []time.Duration{10 * ms, 20 * ms, 100 * ms, 240 * ms, 300 * ms, 1900 * ms, 5000 * ms} {
		tests = append(tests, test{name: fmt.Sprint(i), took: took})
	}
	tests = append(tests, test{name: "S/a", took: ms})
	got := ""
	for _, batch := range batches(tests) {
		got += "["
		for _, t := range batch {
			got += t.name
		}
		got += "]"
	}
	if want := "[012][34][5][6][S/a]"; got != want {
		t.Errorf("%s, must be %s", got, want)
	}
}

func TestPattern(t *testing.T) {
	if got := pattern("TestA", "ExampleB"); got != "^(TestA|ExampleB)$" {
		t.Error(got)
	}
	got := pattern("TestA/b.c")
	if want := "^TestA$/^" + regexp.QuoteMeta("b.c") + "$"; got != want {
		t.Errorf("%s, must be %s", got, want)
	}
}

func TestSubtests(t *testing.T) {
	out := "--- PASS: TestA (0.00s)\n    --- PASS: TestA/b (0.00s)\n        --- PASS: TestA/b/c (0.00s)\n    --- SKIP: TestA/d (0.00s)\n"
	if got := fmt.Sprint(subtests(out, "TestA")); got != "[TestA/b]" {
		t.Error(got)
	}
	if got := subtests(out, "TestA/b"); len(got) != 0 {
		t.Error(got)
	}
}

// The test that a mutant fails is the one reported as failed, or ended by a panic.
func TestFailed(t *testing.T) {
	for out, want := range map[string]string{
		"=== RUN   TestA\n--- FAIL: TestA (0.00s)\n=== RUN   TestB\n":              "TestA",
		"=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\npanic: gone\n": "TestB",
		"": "",
	} {
		if got := failed(out); got != want {
			t.Errorf("%q: %q, must be %q", out, got, want)
		}
	}
}

// A test is as quick as the longest of its parts.
func TestFinished(t *testing.T) {
	out := "--- PASS: TestA (0.10s)\n    --- PASS: TestA/b (0.40s)\n--- PASS: TestC (0.30s)\n--- SKIP: TestD (0.00s)\n--- PASS: TestE (0.31s)\n"
	tests := finished(out)
	if got := within(tests, -1, 300*time.Millisecond); got != "-test.run=^(TestC)$" {
		t.Error(got)
	}
	if got := within(tests, 300*time.Millisecond, time.Second); got != "-test.run=^(TestA|TestE)$" {
		t.Error(got)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

// testdata/table.csv is benchstat's output for made-up results.
func TestRead(t *testing.T) {
	table, err := os.ReadFile("testdata/table.csv")
	if err != nil {
		t.Fatal(err)
	}
	changes, err := read(table)
	if err != nil {
		t.Fatal(err)
	}
	var all, worse []string
	for _, c := range changes {
		all = append(all, c.pkg+" "+c.name+" "+c.unit)
		if c.worse() {
			worse = append(worse, c.String())
		}
	}
	want(t, "what is on both sides", all, `
example/a Same-2 sec/op
example/a Slower-2 sec/op
example/a BitSlower-2 sec/op
example/a Noisy-2 sec/op
example/a Quicker-2 sec/op
example/a Same-2 B/op
example/a Slower-2 B/op
example/a BitSlower-2 B/op
example/a Noisy-2 B/op
example/a Quicker-2 B/op
example/a Same-2 allocs/op
example/a Slower-2 allocs/op
example/a BitSlower-2 allocs/op
example/a Noisy-2 allocs/op
example/a Quicker-2 allocs/op
example/b Wasteful-2 sec/op
example/b Wasteful-2 B/op
example/b Wasteful-2 allocs/op`)
	want(t, "what is worse", worse, `
example/a Slower-2: sec/op +30 % (p=0.002 n=6)
example/b Wasteful-2: allocs/op from nothing (p=0.002 n=6)`)
}

func want(t *testing.T, what string, got []string, lines string) {
	t.Helper()
	if text := strings.Join(got, "\n"); text != strings.TrimPrefix(lines, "\n") {
		t.Errorf("%s:\n%s\nwant:%s", what, text, lines)
	}
}

func TestReadNonsense(t *testing.T) {
	for _, table := range []string{
		",sec/op,CI,sec/op,CI,vs base,P\nX-2,fast,1%,2,1%,~,p=1.000 n=6\n",
		"a,\"b\n",
	} {
		if changes, err := read([]byte(table)); err == nil {
			t.Errorf("read(%q) found %v", table, changes)
		}
	}
}

func TestFindsBenchmarks(t *testing.T) {
	for text, has := range map[string]bool{
		"package a\n\nfunc BenchmarkX(b *testing.B) {":      true,
		"package a\n\nfunc benchClient(b *testing.B) {":     false,
		"package a\n\n// func BenchmarkX(b *testing.B) {":   false,
		"package a\n\nfunc BenchmarkNot(t *testing.T) { }":  false,
		"package a\n\nfunc Bench(b *testing.B, h Harness) ": false,
	} {
		if got := isBenchmark.MatchString(text); got != has {
			t.Errorf("%q has a benchmark: %v", text, got)
		}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const sample = "testdata/sample"

// run is a campaign on the sample: what it finds good, and the report.
func run(t *testing.T, o options, survivors string, args ...string) (good bool, lines []string) {
	t.Helper()
	dir := t.TempDir()
	o.out, o.atOnce, o.survivors = t.Output(), 2, filepath.Join(dir, "survivors.txt")
	o.report = cmp.Or(o.report, filepath.Join(dir, "report.txt"))
	if err := os.WriteFile(o.survivors, []byte(survivors), 0o600); err != nil {
		t.Fatal(err)
	}
	good, err := campaign(t.Context(), o, args)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.report)
	if err != nil {
		t.Fatal(err)
	}
	return good, strings.Split(strings.TrimSpace(string(text)), "\n")
}

// Every mutant of the sample gets the right verdict.
func TestCampaign(t *testing.T) {
	good, lines := run(t, options{}, "", sample)
	if good {
		t.Error("survivors without a reason are good")
	}
	want := map[string]string{
		"10 door.enter: d.locked || !d.open -> !(d.locked || !d.open)":                         "killed by TestEnter",
		"10 door.enter: d.locked || !d.open -> d.locked && !d.open":                            "killed by TestEnter",
		"10 door.enter: d.locked || !d.open -> !d.open":                                        "killed by TestEnter",
		"10 door.enter: d.locked || !d.open -> d.locked":                                       "killed by TestEnter",
		"11 door.enter: false -> true":                                                         "killed by TestEnter",
		"13 door.enter: age >= 18 && !guest || age > 60 -> !(age >= 18 && !guest || age > 60)": "killed by TestEnter",
		"13 door.enter: age >= 18 && !guest || age > 60 -> (age >= 18 && !guest) && age > 60":  "killed by TestEnter",
		"13 door.enter: age >= 18 && !guest || age > 60 -> age > 60":                           "killed by TestEnter",
		"13 door.enter: age >= 18 && !guest || age > 60 -> age >= 18 && !guest":                "killed by TestEnter",
		"13 door.enter: age >= 18 && !guest -> age >= 18 || !guest":                            "killed by TestEnter",
		"13 door.enter: age >= 18 && !guest -> !guest":                                         "killed by TestEnter",
		"13 door.enter: age >= 18 && !guest -> age >= 18":                                      "killed by TestEnter",
		"13 door.enter: age >= 18 -> age > 18":                                                 "killed by TestEnter",
		"13 door.enter: age >= 18 -> age < 18":                                                 "killed by TestEnter",
		"14 door.enter: age > 60 -> age >= 60":                                                 "NOT REACHED",
		"14 door.enter: age > 60 -> age <= 60":                                                 "killed by TestEnter",
		"19 kind: case 0 -> no case":                                                           "killed by TestKind",
		"21 kind: case 1, 2 -> case 2":                                                         "killed by TestKind",
		"21 kind: case 1, 2 -> case 1":                                                         "SURVIVED",
		"25 kind: case 0 -> no case (2)":                                                       "killed by TestKind",
		"33 sum: i != n -> i == n":                                                             "killed by TestSum",
		"40 never: x != nil && x.open -> !(x != nil && x.open)":                                "NOT REACHED",
		"40 never: x != nil && x.open -> x != nil || x.open":                                   "NOT REACHED",
		"40 never: x != nil && x.open -> x.open":                                               "NOT REACHED",
		"40 never: x != nil && x.open -> x != nil":                                             "NOT REACHED",
		"40 never: x != nil -> x == nil":                                                       "NOT REACHED",
		"46 small: n < 0 -> n <= 0":                                                            "SURVIVED",
		"46 small: n < 0 -> n >= 0":                                                            "killed by TestSmall",
		"47 small: limit -> !limit":                                                            "killed by TestSmall",
		"49 small: n == 0 -> n != 0":                                                           "killed by TestSmall",
	}
	got := map[string]string{}
	for _, line := range lines {
		verdict, mutant, _ := strings.Cut(line, ": "+sample+"/sample.go:")
		got[mutant] = verdict
	}
	for _, m := range slices.Sorted(maps.Keys(want)) {
		if got[m] != want[m] {
			t.Errorf("%s: %q, must be %q", m, got[m], want[m])
		}
		delete(got, m)
	}
	for m, verdict := range got {
		t.Errorf("%s: %q, and was not expected", m, verdict)
	}
}

// With reasons for all survivors the campaign on one file is good, whatever the score.
func TestReasons(t *testing.T) {
	file := sample + "/sample.go"
	var list strings.Builder
	for _, m := range []string{
		"door.enter: age > 60 -> age >= 60", "kind: case 1, 2 -> case 1", "small: n < 0 -> n <= 0",
		"never: x != nil && x.open -> !(x != nil && x.open)", "never: x != nil && x.open -> x != nil || x.open",
		"never: x != nil && x.open -> x.open", "never: x != nil && x.open -> x != nil", "never: x != nil -> x == nil",
	} {
		list.WriteString(file + " " + m + "\n\tbecause.\n")
	}
	good, lines := run(t, options{}, list.String(), file)
	if !good {
		t.Errorf("not good: %q", lines)
	}
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "survives with a reason: ") }) {
		t.Errorf("no survivor: %q", lines)
	}
}

// What the last report has as killed is taken over, and the others are judged.
func TestAgain(t *testing.T) {
	file := sample + "/sample.go"
	o := options{again: true, report: filepath.Join(t.TempDir(), "report.txt")}
	last := "NOT REACHED: " + file + ":1 never: x != nil -> x == nil\nkilled by TestOld: " + file + ":2 kind: case 0 -> no case\n" +
		"SURVIVED: " + file + ":9 sum: i != n -> i == n\nkilled by the time-out of TestSlow: " + file + ":9 small: n < 0 -> n >= 0\n"
	if err := os.WriteFile(o.report, []byte(last), 0o600); err != nil {
		t.Fatal(err)
	}
	good, lines := run(t, o, "", sample)
	if good || len(lines) != 30 {
		t.Errorf("good is %v, of %d lines", good, len(lines))
	}
	for _, want := range []string{
		"killed by TestOld: " + file + ":19 kind: case 0 -> no case",
		"killed by the time-out of TestSlow: " + file + ":46 small: n < 0 -> n >= 0",
		"killed by TestSum: " + file + ":33 sum: i != n -> i == n",
		"NOT REACHED: " + file + ":40 never: x != nil -> x == nil",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q", want)
		}
	}
}

// A campaign that is stopped counts what it has done.
func TestStop(t *testing.T) {
	o := options{limit: time.Nanosecond}
	if good, lines := run(t, o, "", sample); !good || len(lines) != 1 || lines[0] != "" {
		t.Errorf("good is %v, of %q", good, lines)
	}
}

// A mutant that makes a test wait for ever is killed, and the whole ends in time.
func TestTimeout(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "hangs")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho '=== RUN   TestA'\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := &binary{dir: dir, file: script, tests: []test{{name: "TestA", reaches: map[int]bool{1: true}}}}
	b.patience = time.Millisecond
	v, err := judge(t.Context(), mutant{id: 1}, false, []*binary{b})
	if err != nil || !v.timeout || v.by != "TestA" {
		t.Errorf("%+v, %v", v, err)
	}
	spins := filepath.Join(dir, "spins")
	if err := os.WriteFile(spins, []byte("#!/bin/sh\necho '=== RUN   TestB'\nwhile :; do :; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	busy := &binary{dir: dir, file: spins, patience: time.Hour}
	if by, timeout, _, err := busy.run(t.Context(), nil, time.Hour, 1); err != nil || !timeout || by != "TestB" {
		t.Errorf("a test that uses the processor for ever: %q, %v, %v", by, timeout, err)
	}
	if v, err := judge(t.Context(), mutant{id: 2}, false, []*binary{b}); err != nil || !v.unmet || v.by != "" {
		t.Errorf("one that no test reaches: %+v, %v", v, err)
	}
	b.tests[0].took = time.Hour
	if v, err := judge(t.Context(), mutant{id: 1}, true, []*binary{b}); err != nil || v.unmet || v.by != "" {
		t.Errorf("one with a reason that only a long test reaches: %+v, %v", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := judge(ctx, mutant{id: 1}, false, []*binary{b}); err == nil {
		t.Error("a campaign that was stopped has a verdict")
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{".", ".=[]"},
		{"./internal/gate internal/gate/", "./internal/gate=[]"},
		{"a.go ./b.go", ".=[a.go b.go]"},
		{"a.go . b.go", ".=[]"},
		{"redisdriver/lua/try.lua", "./redisdriver/lua=[redisdriver/lua/try.lua]"},
		{"quorum/a.go .", "./quorum=[quorum/a.go] .=[]"},
	} {
		packages, files := targets(strings.Fields(c.args))
		var got []string
		for _, p := range packages {
			got = append(got, p+"=["+strings.Join(files[p], " ")+"]")
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, must be %s", c.args, got, c.want)
		}
	}
}

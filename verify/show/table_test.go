// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"
	"testing"
	"time"
)

func lasted(all ...time.Duration) (outs []outcome) {
	for _, d := range all {
		outs = append(outs, outcome{granted: true, overlap: d})
	}
	return outs
}

func TestCell(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		runs []outcome
		want string
	}{
		{nil, "-"},
		{lasted(0, 0, 0), "**0**"},
		{[]outcome{{}, {}}, "**0**, refused"},
		{lasted(3*ms, 1200*ms, 40*ms), "40, at most 1200"},
		{lasted(50*time.Microsecond, 50*time.Microsecond), "< 0.1"},
		{lasted(0, 0, 2500*time.Microsecond), "0, at most 2.5 (in 1 of 3)"},
		{[]outcome{{granted: true, overlap: watch + ms, whole: true}}, "all 10 s"},
	} {
		if got := cell(c.runs); got != c.want {
			t.Errorf("%+v: %q, want %q", c.runs, got, c.want)
		}
	}
}

// Rule: an overlap of hasp under a partition or a pause misses its bar, however short; under a stepped clock, or of another
// lock, it does not.
func TestMissed(t *testing.T) {
	ours, other := find("hasp, etcd"), find("etcd `concurrency`")
	both := []*subject{ours, other}
	a := results{trial{ours, clockStep}: lasted(time.Second), trial{other, pause}: lasted(time.Second), trial{ours, pause}: {{granted: true}}}
	if missed := a.missed(both); len(missed) > 0 {
		t.Errorf("%q", missed)
	}
	a[trial{ours, pause}] = append(a[trial{ours, pause}], lasted(1)...)
	if missed := a.missed(both); len(missed) != 1 || missed[0] != "hasp, etcd, overlap under pause, ms: < 0.1 (in 1 of 2), and not 0" {
		t.Errorf("%q", missed)
	}
	if table := a.table(both); strings.Count(table, "\n") != 4 || !strings.Contains(table, "| hasp, etcd | `Lease.Err` | - | < 0.1 (in 1 of 2) | 1000 |") {
		t.Errorf("%s", table)
	}
}

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

// Rule: an overlap of hasp under a partition or a pause is an error, however short; under a stepped clock, or of another
// lock, it is none.
func TestVerdict(t *testing.T) {
	ours, other := find("hasp, etcd"), find("etcd `concurrency`")
	a := newResults([]*subject{ours, other})
	a.add(ours, clockStep, lasted(time.Second)[0])
	a.add(other, pause, lasted(time.Second)[0])
	a.add(ours, pause, outcome{granted: true})
	if err := a.verdict(); err != nil {
		t.Error(err)
	}
	a.add(ours, pause, lasted(1)[0])
	if err := a.verdict(); err == nil || !strings.Contains(err.Error(), "hasp, etcd overlapped under pause") {
		t.Errorf("%v", err)
	}
	if table := a.table(); strings.Count(table, "\n") != 4 || !strings.Contains(table, "| hasp, etcd | `Lease.Err` | - | < 0.1 (in 1 of 2) | 1000 |") {
		t.Errorf("%s", table)
	}
}

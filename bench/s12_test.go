// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"runtime"
	"testing"
)

func TestS12(t *testing.T) {
	names := []string{baseline, "flock"}
	if runtime.GOOS == "windows" {
		names = names[:1]
	}
	smoke(t, &s12, variant{n: 3}, names...)
}

// A second holder is noticed by both, and who was the last one is known.
func TestFileGuard(t *testing.T) {
	g, err := openFileGuard(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer g.file.Close()
	for i, want := range []bool{true, false} {
		if passed, err := g.enter(); err != nil || passed != want {
			t.Errorf("%d: %v, %v", i, passed, err)
		}
		if _, err := g.enter(); !errors.Is(err, errTwoHolders) {
			t.Errorf("a second one: %v", err)
		}
		if err := g.leave(); err != nil {
			t.Error(err)
		}
		if err := g.leave(); !errors.Is(err, errTwoHolders) {
			t.Errorf("it was let out by another: %v", err)
		}
	}
}

// What is measured is of all processes together.
func TestTogether(t *testing.T) {
	f := together([]part{{Waits: []float64{0.1, 0.3}, Grants: 3, Handoffs: 1}, {Waits: []float64{0.2}, Grants: 1, Handoffs: 1}, {}}, 2e9)
	for name, want := range (figures{"grants": 2, "handoffs": 1, "fairness": 2.25, "never": 1, "longest": 0.3}) {
		if f[name] != want {
			t.Errorf("%s is %v, want %v", name, f[name], want)
		}
	}
}

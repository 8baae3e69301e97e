// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/player"
)

func TestS12(t *testing.T) {
	names := []string{baseline, "flock"}
	if runtime.GOOS == "windows" {
		names = names[:1]
	}
	smoke(t, &s12, variant{n: 3}, names...)
}

// What is measured is of all processes together, and a second holder is noticed.
func TestTogether(t *testing.T) {
	const s = player.Mono(time.Second)
	parts := [][]turn{
		{{0, s / 10, 2 * s / 10}, {0, 3 * s / 10, 4 * s / 10}, {0, s, s + 1}, {s, 3 * s, 3*s + 1}}, // the last one after the end
		{{4 * s / 10, 5 * s / 10, 6 * s / 10}, {s, s + s/10, 0}},
		nil,
	}
	f, err := together(parts, 0, 2*s)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range (figures{"grants": 2, "handoffs": 1.5, "fairness": 2.25, "never": 1, "longest": 2}) {
		if f[name] != want {
			t.Errorf("%s is %v, want %v", name, f[name], want)
		}
	}
	parts[2] = []turn{{0, s/10 + 1, s / 2}}
	if _, err := together(parts, 0, 2*s); !errors.Is(err, errTwoHolders) {
		t.Errorf("two at once: %v", err)
	}
}

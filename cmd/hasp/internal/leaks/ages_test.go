// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// keys returns what is overdue, and what is usual for it.
func keys(a *Ages) (out []string) {
	for _, age := range a.Overdue() {
		out = append(out, fmt.Sprintf("%s %v %v", age.Key, age.Held, age.Usual))
	}
	return out
}

func TestOverdue(t *testing.T) {
	type held map[string]time.Duration
	for name, c := range map[string]struct {
		older time.Duration
		held  held
		want  []string
	}{
		"nothing":       {0, held{}, nil},
		"far longer":    {0, held{"a:1": time.Minute, "a:2": time.Minute, "a:3": time.Minute, "a:4": 10 * time.Minute, "a:5": 10*time.Minute + 1}, []string{"a:5 10m0.000000001s 1m0s"}},
		"too few":       {0, held{"a:1": time.Second, "a:2": time.Second, "a:3": time.Second, "a:4": time.Hour}, nil},
		"a minute":      {0, held{"a:1": 1, "a:2": 1, "a:3": 1, "a:4": time.Minute, "a/5": time.Minute + 1}, []string{"a/5 1m0.000000001s 1ns"}},
		"other classes": {0, held{"a:1": 1, "a:2": 1, "a:3": 1, "b:4": 1, "b:5": time.Hour}, nil},
		"the longest first": {0, held{"a:1": 1, "a:2": 1, "a:3": 1, "a:4": 2 * time.Hour, "a:5": time.Hour, "a:6": 1, "b:1": 1, "b:2": 1, "b:3": 1, "b:4": 1, "b:5": 90 * time.Minute},
			[]string{"a:4 2h0m0s 1ns", "b:5 1h30m0s 1ns", "a:5 1h0m0s 1ns"}},
		"a rule":                {15 * time.Minute, held{"a": 15 * time.Minute, "b": 15*time.Minute + 1}, []string{"b 15m0.000000001s 0s"}},
		"a rule instead of all": {2 * time.Hour, held{"a:1": 1, "a:2": 1, "a:3": 1, "a:4": 1, "a:5": time.Hour}, nil},
	} {
		ages := NewAges(c.older)
		for key, held := range c.held {
			ages.Add(key, held)
			ages.Add(key, held) // a store may name one twice
		}
		if got := keys(ages); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

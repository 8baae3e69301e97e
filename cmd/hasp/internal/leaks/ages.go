// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package leaks finds the leases that have been held for far longer than others like them.
package leaks

import (
	"cmp"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/telemetry"
)

// The rule for keys of one class, as metrics have it: far longer than usual is so many times the median of what the class holds now, if that are
// so many leases at least. What is held for less than a minute never is.
const (
	Times    = 10
	Least    = 5
	Shortest = time.Minute
)

// Ages are for how long keys have been held.
type Ages struct {
	older time.Duration
	all   map[string][]Age // by class
}

// Age is for how long a key has been held.
type Age struct {
	Key   string
	Held  time.Duration
	Usual time.Duration // in its class; 0 where that does not matter
}

// NewAges returns an empty collection. With older, which is not 0, everything that is held for longer is overdue, and nothing else.
func NewAges(older time.Duration) *Ages { return &Ages{older: older, all: make(map[string][]Age)} }

// Add counts a key that is held.
func (a *Ages) Add(key string, held time.Duration) {
	if a.older > 0 && held <= a.older {
		return
	}
	class := telemetry.Class(key)
	a.all[class] = append(a.all[class], Age{Key: key, Held: held})
}

// Overdue returns the keys that have been held for too long, each once, the longest first.
func (a *Ages) Overdue() []Age {
	var late []Age
	for _, ages := range a.all {
		slices.SortFunc(ages, func(x, y Age) int { return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(y.Held, x.Held)) })
		ages = slices.CompactFunc(ages, func(x, y Age) bool { return x.Key == y.Key })
		slices.SortFunc(ages, func(x, y Age) int { return cmp.Compare(y.Held, x.Held) })
		usual, limit := time.Duration(0), a.older
		if a.older == 0 {
			if len(ages) < Least {
				continue
			}
			usual = ages[len(ages)/2].Held
			limit = max(Times*usual, Shortest)
		}
		for _, age := range ages {
			if age.Held <= limit {
				break
			}
			age.Usual = usual
			late = append(late, age)
		}
	}
	slices.SortFunc(late, func(x, y Age) int { return cmp.Or(cmp.Compare(y.Held, x.Held), cmp.Compare(x.Key, y.Key)) })
	return late
}

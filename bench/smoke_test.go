// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

func init() { logging.Disable() }

// Each scenario, for a moment, with each peer and real servers. The figures mean nothing,
// but each metric must have one.
func TestScenarios(t *testing.T) {
	e := newEnv(t, true)
	e.pace = 0.02
	for _, s := range []*scenario{&s1, &s2, &s3, &s9, &s10, &s11, &s13, &s14, &s15} {
		t.Run(s.name, func(t *testing.T) {
			v := s.variants(true)[0]
			for _, p := range s.field(e, slices.Clone(peers)) {
				f, err := once(t.Context(), e, s, v, p)
				if err != nil {
					t.Errorf("%s: %v", p.name, err)
				}
				for _, m := range s.metrics {
					got, ok := f[m.name]
					if serverOnly := m.name == "commands" || m.name == "server_cpu"; !ok && !(p.local && serverOnly) {
						t.Errorf("%s has no %s", p.name, m.name)
					}
					if math.IsNaN(got) || math.IsInf(got, 0) || got < 0 {
						t.Errorf("%s: %s is %v", p.name, m.name, got)
					}
				}
			}
		})
	}
}

// What one peer leaves does not affect the next.
func TestReset(t *testing.T) {
	e := newEnv(t, true)
	for _, p := range waiting(e, slices.Clone(peers)) {
		if p.local {
			continue
		}
		for range 2 {
			if err := e.reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			l, err := p.open(t.Context(), e.target)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if _, err := l.Lock(ctx, "k"); err != nil { // never released
				t.Errorf("%s: the key of the one before is still there: %v", p.name, err)
			}
			cancel()
			if err := l.Close(); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	}
}

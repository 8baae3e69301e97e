// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

func init() { logging.Disable() }

// Each scenario, for a moment, with each peer and real servers. The figures mean nothing,
// but each metric must have one.
func TestScenarios(t *testing.T) {
	e := newEnv(t, true)
	e.pace = 0.02
	for _, s := range []*scenario{&s1, &s2, &s3, &s9, &s10, &s11, &s13, &s14, &s15, &s16} {
		t.Run(s.name, func(t *testing.T) {
			v := s.loads(true)[0]
			for _, p := range s.field(e, peers) {
				f, err := once(t.Context(), e, s, v, p)
				if err != nil {
					t.Errorf("%s: %v", p.name, err)
				}
				for _, m := range s.metrics {
					got, ok := f[m.Name]
					if serverOnly := m.Name == "commands" || m.Name == "server_cpu"; !ok && !(p.on == inProcess && serverOnly) {
						t.Errorf("%s has no %s", p.name, m.Name)
					}
					if math.IsNaN(got) || math.IsInf(got, 0) || got < 0 {
						t.Errorf("%s: %s is %v", p.name, m.Name, got)
					}
				}
			}
		})
	}
}

// What one peer leaves does not affect the next.
func TestReset(t *testing.T) {
	e := newEnv(t, true)
	for _, p := range peers {
		if !waiting(e, p) || p.on == inProcess || !p.available(e) {
			continue
		}
		for range 2 {
			if err := e.prepare(t.Context(), p); err != nil {
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

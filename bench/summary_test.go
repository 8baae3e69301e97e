// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// published returns the results in the documents.
func published(t *testing.T) *results {
	t.Helper()
	r := &results{}
	if err := json.Unmarshal([]byte(read(t, "../docs/results/benchmarks.json")), r); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Scenarios {
		i := slices.IndexFunc(scenarios, func(of *scenario) bool { return of.name == s.Name })
		if i < 0 {
			t.Fatalf("no scenario is called %q", s.Name)
		}
		s.of = scenarios[i]
	}
	return r
}

// The first screen of the page matches the results beside it.
func TestFirstScreenIsOfTheResults(t *testing.T) {
	page := read(t, "../docs/performance.md")
	want, err := splice(page, published(t).summary())
	if err != nil {
		t.Fatal(err)
	}
	if page != want {
		first, _, _ := strings.Cut(want, summaryEnd)
		t.Errorf("docs/performance.md should begin with\n%s", first)
	}
}

// Every row of the first screen names an existing scenario, metric and peers, so that
// none is silently left out.
func TestFirstScreenIsWhole(t *testing.T) {
	r := published(t)
	for _, h := range headlines {
		if s := r.scenario(h.scenario); s == nil {
			t.Errorf("%q: no scenario %s", h.text, h.scenario)
		} else if _, ok := s.figure(h.n, h.peer(), h.metric); !ok {
			t.Errorf("%q: %s has no figure %s of %s under %d", h.text, h.scenario, h.metric, h.peer(), h.n)
		}
	}
	for _, a := range alternatives {
		s := r.scenario(a.scenario)
		if s == nil {
			t.Errorf("%q: no scenario %s", a.text, a.scenario)
			continue
		}
		for _, name := range append([]string{a.peer()}, a.others...) {
			if _, ok := s.figure(a.n, name, a.metric); !ok {
				t.Errorf("%q: %s has no figure %s of %s under %d", a.text, a.scenario, a.metric, name, a.n)
			}
		}
	}
}

// An alternative is shown only if it is better.
func TestAlternativeIsBetter(t *testing.T) {
	s := toy()
	for _, c := range []struct {
		metric, other string
		shown         bool
	}{{"rate", "redislock", false}, {"rate", "sync.Mutex", true}, {"wait", "redislock", false}, {"wait", "sync.Mutex", true}, {"rate", "etcd", false}} {
		row := alternative{headline{"when", "s0", 64, c.metric, ""}, []string{c.other}}.row(s)
		if (row != nil) != c.shown {
			t.Errorf("%s by %s: %q", c.other, c.metric, row)
		}
	}
}

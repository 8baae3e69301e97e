// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/memdriver"
)

// The suite passes for an engine behind decorators.
func TestDecorators(t *testing.T) {
	for name, s := range map[string]fault.Script{
		"none":  nil,
		"twice": func(fault.Call) fault.Fault { return fault.Fault{Twice: true} },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{Fake: true, New: func(testing.TB) drivertest.Store {
				store := memdriver.New()
				return drivertest.Store{Open: func() driver.Driver { return fault.NewNode(store, s) }}
			}})
		})
	}
}

// A node behind a decorator that hides it is admitted by the harness.
func TestHiddenNode(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Fake: true, New: func(testing.TB) drivertest.Store {
		store := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Hour})
		votes(store)
		return drivertest.Store{Open: func() driver.Driver { return fault.New(store, nil) }}
	}})
}

// Each broken engine fails the cases that must find it, and for each case there is one
// that fails it: the suite can fail.
func TestBrokenEnginesAreFound(t *testing.T) {
	cases := make(map[string]drivertest.Case)
	finds := make(map[string]int)
	for _, c := range drivertest.Cases() {
		cases[c.Name] = c
	}
	for _, b := range brokenEngines() {
		t.Run(b.name, func(t *testing.T) {
			for _, name := range strings.Fields(b.cases) {
				c, ok := cases[name]
				if !ok {
					t.Errorf("there is no case %s", name)
					continue
				}
				r := record(t, c, b.harness())
				switch log := r.log.String(); {
				case !r.failed:
					t.Errorf("%s did not find it: %s", name, log)
				case !strings.Contains(log, "the rule: "+c.Rule):
					t.Errorf("%s failed without its rule: %s", name, log)
				default:
					finds[name]++
				}
			}
		})
	}
	for name := range cases {
		if finds[name] == 0 {
			t.Errorf("no broken engine fails %s", name)
		}
	}
}

// A failing case that is a trace prints the step that did not hold.
func TestFailingTraceNamesItsStep(t *testing.T) {
	for _, b := range brokenReleases {
		if b.name != "release does nothing" {
			continue
		}
		if log := record(t, caseOf(t, "ReleaseFreesTheKey"), b.harness()).log.String(); !strings.Contains(log, `step 3 of the trace, "free"`) {
			t.Errorf("the step is missing: %s", log)
		}
		return
	}
	t.Error("there is no such engine")
}

// brokenEngine is a mistake that an engine may have, and the cases that must
// find it.
type brokenEngine struct {
	name  string
	cases string
	open  engine
}

func (b brokenEngine) harness() drivertest.Harness {
	return drivertest.Harness{New: func(testing.TB) drivertest.Store {
		s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: 10_000 * time.Hour})
		return drivertest.Store{
			Open:    b.open(s),
			Names:   func() []string { return []string{"lock:k", "lock:k:line"} },
			Restart: func() { s.Restart(nil) },
			Reload:  func() { s.Restart(s.Snapshot()) },
			Flush:   s.Flush,
			Persist: func(key string) bool { s.Persist(key); return true },
		}
	}}
}

func brokenEngines() []brokenEngine {
	var all []brokenEngine
	for _, part := range [][]brokenEngine{brokenHolds, brokenReleases, brokenRenewals, brokenQueues, brokenFences, brokenProposals, brokenNodes, brokenLooks,
		brokenShares, brokenConverts, brokenSlots, brokenMarks, brokenTellers, brokenWanted, brokenEnter, brokenSweepers} {
		all = append(all, part...)
	}
	return all
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"testing"

	"github.com/hasplock/hasp/internal/contend"
)

// cost counts the commands that the server carries out for f, those of scripts included.
func (w *world) cost(f func()) int {
	w.Helper()
	w.tick() // who comes in the same millisecond as the one before has less to write
	w.do("CONFIG", "RESETSTAT")
	f()
	total := -1 // CONFIG RESETSTAT
	for _, calls := range w.calls() {
		total += calls
	}
	return total
}

// What nobody is in the way of goes the short way. That the long way gives the same
// answers is TestScriptsEqualMemory's; here it is seen by what it costs.
func TestShortWays(t *testing.T) {
	for name, c := range map[string]struct {
		node    bool
		prepare []contend.Owner // have the key
		r       contend.Owner
		release bool
		upTo    bool // of the release
		want    int
	}{
		"a free key":                       {r: ask("k"), want: 6},
		"the release of one":               {r: ask("k"), release: true, want: 4},
		"a free key, to read":              {r: reader("k"), want: 11},
		"beside a reader":                  {prepare: []contend.Owner{reader("k")}, r: reader("k"), want: 14},
		"a reader's release beside others": {prepare: []contend.Owner{reader("k")}, r: reader("k"), release: true, want: 10},
		"the last reader's release":        {r: reader("k"), release: true, want: 9},
		"a vote":                           {node: true, r: proposing("k", 0), want: 8},
		"a vote that another has":          {node: true, prepare: []contend.Owner{proposing("k", 0)}, r: proposing("k", 0), want: 7},
		"the release of a vote":            {node: true, r: proposing("k", 0), release: true, want: 5},
		"the withdrawal of one":            {node: true, r: proposing("k", 0), release: true, upTo: true, want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			w, d := newPlain(t)
			if c.node {
				d = w.node()
				w.admit(d)
			}
			ready := func(r contend.Owner) contend.Owner {
				if r.Settled = true; c.node {
					r.Fence = w.micros()
				}
				return r
			}
			warm := ready(ask("warm"))
			w.grant(d, warm) // the script is loaded, and the mark is there
			w.release(d, warm)
			for _, r := range c.prepare {
				w.grant(d, ready(r))
			}
			r := ready(c.r)
			got := w.cost(func() {
				if res := w.try(d, r); !res.Granted && len(c.prepare) == 0 {
					t.Errorf("refused: %+v", res)
				}
			})
			if c.upTo {
				r.UpTo = r.Fence
			}
			if c.release {
				got = w.cost(func() { w.release(d, r) })
			}
			failIf(t, got != c.want, "it costs %d commands, want %d", got, c.want)
		})
	}
}

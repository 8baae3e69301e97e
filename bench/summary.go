// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"strings"
)

// headline is one figure of the first screen.
type headline struct {
	text     string
	scenario string
	n        int
	metric   string
	own      string // hasp's peer, where it is not the baseline
}

// headlines are the rows of the first screen.
var headlines = []headline{
	{"lock and release a free key, one goroutine", "s1", 1, "p50", ""},
	{"the same, pairs a second of 64 goroutines with a key each", "s1", 64, "pairs", ""},
	{"the server's CPU for such a pair", "s1", 64, "server_cpu", ""},
	{"128 clients contend for one key: handoffs a second", "s2", 128, "handoffs", ""},
	{"… the slowest 1 % of their waits, at least", "s2", 128, "p99", ""},
	{"64 goroutines of one process contend for one key: handoffs a second", "s3", 64, "handoffs", ""},
	{"… with `LockOptions.Cohort`", "s3", 64, "handoffs", "hasp cohort"},
	{"keep 100,000 leases: client and server, of one core", "s4", 100_000, "cpu", ""},
	{"a holder is killed: the key is free after its expiry for", "s6", 10, "median", ""},
	{"nine reads to a write, 64 goroutines: grants a second", "s9", 64, "grants", ""},
	{"Redlock over five nodes, 64 goroutines: pairs a second", "s8", 64, "pairs", redlock},
}

// summaryPeers are the columns of the first screen, after hasp's.
var summaryPeers = []string{"redislock", "redsync", "rueidislock", "etcd"}

// alternative is a reason to use something else. It is shown if the results confirm it.
type alternative struct {
	headline          // text says when
	others   []string // peers, of which the best counts
}

var alternatives = []alternative{
	{headline{"All of it happens in one process", "s1", 1, "p50", ""}, []string{"sync.Mutex"}},
	{headline{"One machine, from a shell, without renewal, fences or a view of the holders", "s7", 40, "p50", "hasp (SQLite)"}, []string{"flock"}},
	{headline{"Free keys, one call at a time, with no fence, queue or renewal", "s1", 1, "p50", ""}, []string{"redislock", "redsync", "rueidislock"}},
	{headline{"Free keys, as many pairs a second as one client can make", "s1", 512, "pairs", ""}, []string{"redislock", "redsync", "rueidislock"}},
	{headline{"One hot key: as many grants a second as possible, to any client, even if some starve", "s2", 128, "grants", ""},
		[]string{"redislock", "redsync", "rueidislock", "etcd"}},
	{headline{"Redlock, one call at a time", "s8", 1, "p50", redlock}, []string{"redsync 5 nodes", "redsync 5 nodes fail-fast"}},
	{headline{"etcd runs already, or leases must survive the loss of servers without a pause; many are held, few are taken", "s4", 100_000, "cpu", ""}, []string{"etcd"}},
}

func (h headline) peer() string { return cmp.Or(h.own, baseline) }

// bestOf returns the best figure of a library, whatever its configuration.
func (s *scenarioResult) bestOf(h headline, library string) string {
	var names []string
	for _, v := range s.Variants {
		for _, c := range v.Cells {
			if v.N == h.n && family(c.Peer) == library {
				names = append(names, c.Peer)
			}
		}
	}
	if len(names) == 0 {
		return "–"
	}
	return written(s.metric(h.metric).Unit)(s.figure(h.n, s.best(h.n, h.metric, names...), h.metric))
}

// summary returns the first screen: what hasp costs beside the others, and when
// to choose another.
func (r *results) summary() string {
	var w strings.Builder
	costs := table{append([]string{"", "hasp"}, summaryPeers...)}
	for _, h := range headlines {
		s := r.scenario(h.scenario)
		if s == nil {
			continue
		}
		v, ok := s.figure(h.n, h.peer(), h.metric)
		if !ok {
			continue
		}
		row := []string{h.text, s.write(h.metric, v)}
		for _, library := range summaryPeers {
			if h.own != "" && h.own != redlock { // another way to use hasp: the others' figures are above
				row = append(row, "")
				continue
			}
			row = append(row, s.bestOf(h, library))
		}
		costs = append(costs, row)
	}
	w.WriteString(costs.Markdown("---:"))
	fmt.Fprintf(&w, "\nEach figure is that of the library's best configuration in [the tables](results/benchmarks.md). Measured on %s, with hasp %s.\n",
		r.Started.UTC().Format("2006-01-02"), r.Machine.Revision)

	w.WriteString("\n**When to choose another:**\n\n")
	others := table{{"when", "use", "its figure", "hasp"}}
	for _, a := range alternatives {
		if row := a.row(r.scenario(a.scenario)); row != nil {
			others = append(others, row)
		}
	}
	return w.String() + others.Markdown("---")
}

// row returns what was measured of an alternative; nil where hasp is no worse.
func (a alternative) row(s *scenarioResult) []string {
	if s == nil {
		return nil
	}
	best := s.best(a.n, a.metric, a.others...)
	other, ok := s.figure(a.n, best, a.metric)
	own, measured := s.figure(a.n, a.peer(), a.metric)
	m := s.metric(a.metric)
	if !ok || !measured || m.better == lower && other >= own || m.better == higher && other <= own {
		return nil
	}
	unit := ""
	switch m.Unit {
	case number:
		unit = " " + m.Head
	case percent:
		unit = " of one core"
	}
	return []string{a.text, family(best), m.Unit.write(other) + unit, m.Unit.write(own) + unit}
}

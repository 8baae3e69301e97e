// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"math"
	"testing"
)

// toy is a scenario with made-up figures: of three rounds, the second one on a
// machine of half the speed, and the third one failed for redsync.
func toy() *scenarioResult {
	s := &scenario{
		name:    "s0",
		metrics: []metric{{"rate", "rate/s", number, higher, true}, {"wait", "", seconds, lower, false}},
		curves:  []curve{{"rate", "How fast", "clients"}, {"wait", "How long", "clients"}},
	}
	r := &scenarioResult{Name: "s0", Title: "a toy", of: s}
	for _, n := range []int{1, 64} {
		k := float64(n)
		v := &variantResult{Name: "some", N: n, Cells: []*cell{
			{Peer: "hasp", Rounds: []figures{{"rate": 100 * k, "wait": 1}, {"rate": 50 * k, "wait": 2}, {"rate": 90 * k, "wait": 1}}},
			{Peer: "redislock", Rounds: []figures{{"rate": 50 * k, "wait": 4}, {"rate": 25 * k, "wait": 8}, {"rate": 30 * k, "wait": 5}}},
			{Peer: "redsync", Rounds: []figures{{"rate": 10 * k, "wait": 3}, {"rate": 5 * k}, nil}},
			{Peer: "etcd", Skipped: "too many"},
			{Peer: "sync.Mutex", Rounds: []figures{{"rate": 1e6 * k, "wait": 1e-6}}},
		}}
		r.Variants = append(r.Variants, v)
	}
	return r
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.of, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("nothing has a median")
	}
}

// Figures have as many digits as are saved, and no others: the page and the file have the same.
func TestFigures(t *testing.T) {
	all := figures{"rate": 578.4973, "unknown": 1}
	s := &scenario{metrics: []metric{{Name: "rate"}, {Name: "unmeasured"}}, run: func(context.Context, *env, variant, *peer) (figures, error) { return all, nil }}
	f, err := once(t.Context(), &env{}, s, variant{}, localPeers[0])
	if err != nil || !maps.Equal(f, figures{"rate": 578.5}) {
		t.Errorf("%v, %v", f, err)
	}
	all = figures{"rate": math.NaN()}
	if f, err := once(t.Context(), &env{}, s, variant{}, localPeers[0]); err == nil {
		t.Errorf("not a number: %v", f)
	}
}

func TestSummary(t *testing.T) {
	r := toy()
	c := r.cell(64, "redislock")
	ofHasp := func(n int, peer string) float64 {
		v, _ := ratio(r.cell(n, peer), r.cell(n, baseline), "rate")
		return v
	}
	for _, f := range []struct {
		what      string
		got, want float64
	}{
		{"median", median(c.values("rate")), 30 * 64},
		{"of hasp's, each round against its own", ofHasp(64, "redislock"), 0.5},
		{"of hasp's, in the rounds that both have", ofHasp(1, "redsync"), 0.1},
		{"median of the rounds that have it", median(r.cell(1, "redsync").values("wait")), 3},
	} {
		if f.got != f.want {
			t.Errorf("%s: %v, want %v", f.what, f.got, f.want)
		}
	}
	if _, ok := r.figure(1, "etcd", "rate"); ok {
		t.Error("a peer that was skipped has a figure")
	}
}

func TestBest(t *testing.T) {
	r := toy()
	for _, c := range []struct {
		metric string
		names  []string
		want   string
	}{
		{"rate", nil, "redislock"}, // neither hasp nor those in one process
		{"wait", nil, "redsync"},
		{"rate", []string{"redsync", "etcd"}, "redsync"},
		{"rate", []string{"etcd", "nobody"}, ""},
	} {
		if got := r.best(64, c.metric, c.names...); got != c.want {
			t.Errorf("the best of %q at %s is %q, want %q", c.names, c.metric, got, c.want)
		}
	}
}

func TestBars(t *testing.T) {
	r := toy()
	for _, c := range []struct {
		bar         bar
		got         string
		reached, ok bool
	}{
		{atLeast(2, "", 64, "rate"), "2.00 × redislock", true, true},
		{atLeast(2.1, "", 64, "rate"), "2.00 × redislock", false, true},
		{atMost(0.25, "", 64, "wait", "redislock"), "0.25 × redislock", true, true},
		{atMost(0.3, "", 64, "wait"), "0.33 × redsync", false, true},
		{atLeast(1, "", 64, "rate", "etcd"), "", false, false},
		{atLeast(1, "", 2, "rate"), "", false, false},
		{within(baseline, "", 1, "wait", most(1)), "1 s", true, true},
		{within(baseline, "", 1, "wait", most(0.5)), "1 s", false, true},
		{growth(baseline, "", "wait", 1, 64, most(1.2)), "1 s to 1 s, 1.00 ×", true, true},
		{growth(baseline, "", "rate", 1, 64, most(1.2)), "90 to 5,760, 64.00 ×", false, true},
		{growth(baseline, "", "rate", 1, 512, most(1.2)), "", false, false},
	} {
		got, reached, ok := c.bar.judge(r)
		if got != c.got || reached != c.reached || ok != c.ok {
			t.Errorf("got %q, %v, %v; want %q, %v, %v", got, reached, ok, c.got, c.reached, c.ok)
		}
	}
	r.of.bars = []bar{{"never measured", func(*scenarioResult) (string, bool, bool) { return "", true, false }}}
	r.judge()
	if v := r.Verdicts; len(v) != 1 || v[0].Reached || v[0].Got != "not measured" {
		t.Errorf("a bar without figures: %+v", v)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"math"
	"testing"
)

// toy is a scenario with made-up figures: of three rounds, the second one on a
// machine of half the speed, and the third one failed for redsync.
func toy() *scenarioResult {
	s := &scenario{
		name:    "s0",
		metrics: []metric{{name: "rate", head: "rate/s", better: higher, main: true}, {name: "wait", unit: seconds, better: lower}},
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
		v.summarize(s.metrics)
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

// What the page says, results.json says, too: no figure is rounded twice.
func TestFiguresAreThoseOfTheFile(t *testing.T) {
	v := &variantResult{Cells: []*cell{{Peer: "hasp", Rounds: []figures{{"rate": 578.4973}, nil}}}}
	metrics := []metric{{name: "rate"}}
	v.summarize(metrics)
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var read variantResult
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	read.summarize(metrics)
	if got, want := v.Cells[0].Median["rate"], read.Cells[0].Median["rate"]; got != want || got == 0 {
		t.Errorf("the page has %v, the file %v", got, want)
	}
}

func TestSummary(t *testing.T) {
	r := toy()
	c := r.cell(64, "redislock")
	for _, f := range []struct {
		what      string
		got, want float64
	}{
		{"median", c.Median["rate"], 30 * 64},
		{"min", c.Min["rate"], 25 * 64},
		{"max", c.Max["rate"], 50 * 64},
		{"of hasp's, each round against its own", c.OfHasp["rate"], 0.5},
		{"of hasp's, in the rounds that both have", r.cell(1, "redsync").OfHasp["rate"], 0.1},
		{"median of the rounds that have it", r.cell(1, "redsync").Median["wait"], 3},
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
		{under(1, "", 1, "wait"), "1 s", true, true},
		{under(0.5, "", 1, "wait"), "1 s", false, true},
		{flat(1.2, "", "wait", 1, 64), "1 s to 1 s, 1.00 ×", true, true},
		{flat(1.2, "", "rate", 1, 64), "90 to 5,760, 64.00 ×", false, true},
		{flat(1.2, "", "rate", 1, 512), "", false, false},
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

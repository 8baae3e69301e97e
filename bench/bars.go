// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// against is a bar for own's figure over that of the best of the named peers;
// without names, of all rivals.
func against(own, text string, n int, metric string, names []string, reached func(ratio float64) bool) bar {
	return bar{text, func(r *scenarioResult) (string, bool, bool) {
		best := r.best(n, metric, names...)
		if best == "" {
			return "", false, false
		}
		ratio, ok := r.ratio(n, own, best, metric)
		return fmt.Sprintf("%.2f × %s", ratio, best), reached(ratio), ok
	}}
}

func atLeast(limit float64, text string, n int, metric string, names ...string) bar {
	return against(baseline, text, n, metric, names, func(ratio float64) bool { return ratio >= limit })
}

func atMost(limit float64, text string, n int, metric string, names ...string) bar {
	return against(baseline, text, n, metric, names, func(ratio float64) bool { return ratio <= limit })
}

// within is a bar for own's figure itself, whatever the peers do.
func within(own, text string, n int, metric string, reached func(v float64) bool) bar {
	return bar{text, func(r *scenarioResult) (string, bool, bool) {
		v, ok := r.figure(n, own, metric)
		return r.write(metric, v), reached(v), ok
	}}
}

func under(limit float64, text string, n int, metric string) bar {
	return within(baseline, text, n, metric, func(v float64) bool { return v <= limit })
}

// flat is a bar for how hasp's figure grows from one load to another.
func flat(limit float64, text, metric string, from, to int) bar {
	return bar{text, func(r *scenarioResult) (string, bool, bool) {
		a, okA := r.figure(from, baseline, metric)
		b, okB := r.figure(to, baseline, metric)
		if !okA || !okB || a == 0 {
			return "", false, false
		}
		return fmt.Sprintf("%s to %s, %.2f ×", r.write(metric, a), r.write(metric, b), b/a), b/a <= limit, true
	}}
}

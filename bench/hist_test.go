// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
	"time"
)

func TestHistClassesAreNarrow(t *testing.T) {
	last := -1
	for d := time.Duration(1); d < 15*time.Minute; d += 1 + d/100 {
		c := class(d)
		if c < last || c >= histClasses {
			t.Fatalf("%v is of class %d, after %d", d, c, last)
		}
		last = c
		if off := math.Abs(float64(middle(c)-d)) / float64(d); off > 0.016 {
			t.Fatalf("%v is taken for %v", d, middle(c))
		}
	}
	if class(-1) != 0 || class(math.MaxInt64) != histClasses-1 {
		t.Error("what is out of range has no class")
	}
}

func TestHistQuantiles(t *testing.T) {
	var a, b hist
	if a.quantile(0.5) != 0 {
		t.Error("nothing has a median")
	}
	for i := range 1000 {
		h := &a
		if i%2 == 0 {
			h = &b
		}
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	a.join(&b)
	for q, want := range map[float64]float64{0: 0.001, 0.5: 0.5, 0.99: 0.99, 0.999: 0.999, 1: 1} {
		if got := a.quantile(q); math.Abs(got/want-1) > 0.016 {
			t.Errorf("quantile %v is %v s, want %v s", q, got, want)
		}
	}
	if a.count != 1000 || a.longest != time.Second {
		t.Errorf("%d, the longest %v", a.count, a.longest)
	}
	var one hist
	one.add(3 * time.Second)
	if got := one.quantile(0.99); math.Abs(got/3-1) > 0.016 {
		t.Errorf("the p99 of one is %v s", got)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import "testing"

func TestEnter(t *testing.T) {
	for _, c := range []struct {
		d     door
		age   int
		guest bool
		want  bool
	}{
		{door{open: true}, 18, false, true},
		{door{open: true}, 17, false, false},
		{door{open: true}, 18, true, false},
		{door{open: true}, 61, true, true}, // nobody is 60
		{door{open: false}, 18, false, false},
		{door{open: true, locked: true}, 18, false, false},
	} {
		if got := c.d.enter(c.age, c.guest); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestKind(t *testing.T) {
	for n, want := range []string{"none", "few"} { // and what of 2?
		if got := kind(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	_ = kind(2) // only that it comes back
	if kind(5) != "some" || kind(10) != "many" {
		t.Error("5 or 10")
	}
}

func TestSum(t *testing.T) {
	t.Run("3", func(t *testing.T) {
		if sum(3) != 3 {
			t.Error("wrong")
		}
	})
}

func TestSmall(t *testing.T) {
	if !small(-1) || !small(0) || small(1) {
		t.Error("wrong")
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package sample has conditions that its tests look at well, badly and not at all.
package sample

type door struct{ open, locked bool }

func (d *door) enter(age int, guest bool) bool {
	if d.locked || !d.open {
		return false
	}
	return age >= 18 && !guest ||
		age > 60
}

func kind(n int) string {
	switch n {
	case 0:
		return "none"
	case 1, 2:
		return "few"
	}
	switch d := n / 10; d {
	case 0:
		return "some"
	default:
		return "many"
	}
}

func sum(n int) (total int) {
	for i := 0; i != n; i++ {
		total += i
	}
	return total
}

func never(x *door) bool {
	return x != nil && x.open
}

var small = func(n int) bool {
	const limit = 3 < 4
	switch {
	case n < 0:
		return limit
	}
	return n == 0
}

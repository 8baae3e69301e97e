// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/bits"
	"time"
)

// A hist counts durations in classes that are 1.6 % wide at most, from 1 ns to
// 18 minutes. Adding allocates nothing, so all allocations are the peer's.
type hist struct {
	classes [histClasses]uint32
	count   int
	longest time.Duration
}

const (
	histBits    = 6 // 64 classes to each power of two
	histLongest = 40
	histClasses = (histLongest - histBits + 1) << histBits
)

func class(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-histBits-1, 0)
	return min(shift<<histBits+int(v>>shift), histClasses-1)
}

// middle is the inverse of class.
func middle(c int) time.Duration {
	shift := max(c>>histBits-1, 0)
	low := c - shift<<histBits
	return time.Duration(low)<<shift + time.Duration(1)<<shift/2
}

func (h *hist) add(d time.Duration) {
	h.classes[class(d)]++
	h.count++
	h.longest = max(h.longest, d)
}

// join adds what o has counted.
func (h *hist) join(o *hist) {
	for c, n := range o.classes {
		h.classes[c] += n
	}
	h.count += o.count
	h.longest = max(h.longest, o.longest)
}

// quantile returns the duration that a share of q of all do not exceed, in
// seconds; 0 when there is none.
func (h *hist) quantile(q float64) float64 {
	rank := int(math.Ceil(q * float64(h.count)))
	for c, n := range h.classes {
		if rank -= int(n); rank <= 0 && n > 0 {
			return min(middle(c), h.longest).Seconds()
		}
	}
	return h.longest.Seconds()
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// said is a server's reply, as go-redis returns it.
type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

// A cluster's client looks for the master by itself after MOVED, ASK and READONLY alone.
func TestGoneUnnoticed(t *testing.T) {
	for err, want := range map[error]bool{
		io.EOF: true, errors.New("i/o timeout"): true, said("CLUSTERDOWN The cluster is down"): true, said("LOADING Redis is loading"): true,
		said("MASTERDOWN Link with MASTER is down"): true, redis.Nil: false, said("MOVED 1 127.0.0.1:1"): false, said("NOSCRIPT"): false,
	} {
		if got := goneUnnoticed(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// A lease of the longest TTL ends a moment later than its Span says, which is no overflow.
func TestSpanLeavesRoom(t *testing.T) {
	for pttl, want := range map[int64]time.Duration{-2: Free, -1: Forever, 0: 0, 7: 7 * time.Millisecond} {
		if got := Span(pttl); got != want {
			t.Errorf("Span(%d) is %v", pttl, got)
		}
	}
	for _, pttl := range []int64{math.MaxInt64 / int64(time.Millisecond), math.MaxInt64} {
		if after := Span(pttl) + time.Millisecond; after < math.MaxInt64-2*time.Millisecond {
			t.Errorf("a millisecond after Span(%d) is %v", pttl, after)
		}
	}
}

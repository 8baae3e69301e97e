// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"time"

	"github.com/hasplock/hasp/driver"
)

//go:generate go test -run TestScriptsAreGenerated -generate

// layout is what the scripts and this package must agree on. The scripts are generated
// with it, from lua/src.
var layout = struct {
	Shared            string
	Linger, Keep, Day int64 // ms
	Lead, Reach, Turn int64 // us
	Most              int64 // Lua does not tell larger numbers from their neighbours
	Free              int64 // no limit is above a quarter of it
}{
	Shared: sharedValue,
	Linger: linger.Milliseconds(),
	Keep:   keep.Milliseconds(),
	Day:    (24 * time.Hour).Milliseconds(),
	Lead:   driver.MaxFenceSkew.Microseconds(),
	Reach:  1 << 20,
	Turn:   (20 * time.Second).Microseconds(),
	Most:   1<<53 - 1,
	Free:   4 * maxLimit,
}

const (
	linger = 60 * time.Second // a sidecar outlives what it belongs to for so long
	keep   = 61 * time.Second // the largest fence of a key is kept for so long after its lease
)

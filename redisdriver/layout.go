// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// layout is what the scripts and this package must agree on: F.Keep in Lua is its Keep.
var layout = struct {
	Shared            string
	Linger, Keep, Day int64 // ms
	Lead, Reach, Turn int64 // us
	Most              int64 // Lua does not tell larger numbers from their neighbours
	Free              int64 // no limit is above a quarter of it
	Askers            int64 // inboxes besides the latest that a grant has
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
	Askers: 31,
}

// The requests of the batch script, by kind. A request is its kind, and then all of the
// kind's fields in their order here. The scripts are built with their places, and
// know a field by its name; a field that may be missing is nil there, and "" on the way.
type (
	// tryArgs: Exclusive, and with neither a place in the queue nor a proposal.
	tryArgs struct {
		value string // what the lock holds: "<owner> <label>"
		ttl   int64  // ms
		state string // of the grant: see queue.lua
		keep  int64  // ms for which the grant is kept
	}
	// proposeArgs: as tryArgs, with a proposed fence.
	proposeArgs struct {
		value string
		ttl   int64
		state string
		fence string // 16 digits
	}
	// tryAnyArgs: any Try.
	tryAnyArgs struct {
		value    string
		ttl      int64
		state    string
		fences   int
		fence    string `lua:"optional"` // the proposed one, or the one held: 16 digits; or ""
		how      string // "", "raise", "restore" or "convert"
		limit    string `lua:"optional"` // of an owner that shares the key, "0" for none; Exclusive: ""
		place    string `lua:"optional"` // to join the queue, what follows contact in a place; or ""
		patience int64  // of that place, ms
	}
	// releaseArgs: of an owner that finished, and that nothing is asked for any more.
	releaseArgs struct{ value string }
	// withdrawArgs: as releaseArgs, but a lease with a larger fence stays.
	withdrawArgs struct {
		value string
		upTo  string // 16 digits
	}
	// releaseAnyArgs: any Release.
	releaseAnyArgs struct {
		value     string
		tombstone string `lua:"optional"` // ms for which this owner is granted nothing more; or ""
		upTo      string `lua:"optional"` // as of withdrawArgs, or ""
		ending    string `lua:"optional"` // "", "unused", "unfinished", or "unclaimed": a lease goes only if it was handed off and never claimed
		tell      string `lua:"optional"` // the channel on which its holder hears of it, or ""
	}
)

func (a tryArgs) args() []any {
	return []any{"try", a.value, number(a.ttl), letter(a.state), number(a.keep)}
}
func (a proposeArgs) args() []any  { return []any{"propose", a.value, a.ttl, a.state, a.fence} }
func (a releaseArgs) args() []any  { return []any{"release", a.value} }
func (a withdrawArgs) args() []any { return []any{"withdraw", a.value, a.upTo} }

func (a tryAnyArgs) args() []any {
	return []any{"tryAny", a.value, a.ttl, a.state, a.fences, a.fence, a.how, a.limit, a.place, a.patience}
}

// releaseOf releases what a Try acquired: its keys but the tombstone, and its value.
func releaseOf(try *wire.Call) *wire.Call {
	return &wire.Call{Script: try.Script, Mark: try.Mark, Keys: try.Keys[:7], Args: []any{"release", try.Args[1]}}
}

func (a releaseAnyArgs) args() []any {
	return []any{"releaseAny", a.value, a.tombstone, a.upTo, a.ending, a.tell}
}

// numbers are some that were used last: a program has few TTLs, and each call wants them as any.
var numbers [16]atomic.Pointer[any]

func number(n int64) any {
	last := &numbers[uint64(n)%uint64(len(numbers))]
	if p := last.Load(); p != nil && *p == n {
		return *p
	}
	var v any = n
	last.Store(&v)
	return v
}

func letter(s string) any {
	if s == "h" {
		return "h" // a constant, which needs no memory as any
	}
	return s
}

// kinds are these, each with how many keys its requests have: the eighth is the owner's
// tombstone.
var kinds = []struct {
	keys   int
	fields interface{ args() []any }
}{
	{8, tryArgs{}}, {8, proposeArgs{}}, {8, tryAnyArgs{}}, {7, releaseArgs{}}, {7, withdrawArgs{}}, {8, releaseAnyArgs{}},
}

const (
	linger = 60 * time.Second // a sidecar outlives what it belongs to for so long
	keep   = 61 * time.Second // the largest fence of a key is kept for so long after its lease
)

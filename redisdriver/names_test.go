// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"testing"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// The names of a lock's keys are cut from one text: they are what Beside makes of each.
func TestNamesOfALock(t *testing.T) {
	for _, prefix := range []string{"", "hasp:", "{a}", "x{", "}"} {
		d := &Driver{prefix: prefix}
		for _, key := range []string{"k", "a{b}c", "{", "}", "a}b{", "{}"} {
			side := wire.Beside(prefix + key)
			want := names{
				lock: prefix + key, grant: "hasp.grant:" + side, queue: "hasp.queue:" + side, places: "hasp.places:" + side,
				shares: "hasp.shares:" + side, held: "hasp.held:" + side, room: "hasp.room:" + side, side: side, mark: "hasp.fence",
			}
			if got := d.names(key); got != want {
				t.Errorf("of %q behind %q: %+v", key, prefix, got)
			}
		}
	}
}

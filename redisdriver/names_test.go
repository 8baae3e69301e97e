// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"testing"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// The names of a lock's keys are cut from one text: they are what Beside makes of each.
func TestNamesOfALock(t *testing.T) {
	for _, prefix := range []string{"", "hasp:", "{a}", "x{", "}"} {
		d := &keyspace{prefix: prefix}
		for _, key := range []string{"k", "a{b}c", "{", "}", "a}b{", "{}"} {
			side := wire.Beside(prefix + key)
			want := &names{
				lock: prefix + key, grant: "hasp.grant:" + side, queue: "hasp.queue:" + side, places: "hasp.places:" + side,
				shares: "hasp.shares:" + side, held: "hasp.held:" + side, room: "hasp.room:" + side, side: side, mark: "hasp.fence", key: key,
			}
			want.all = [7]any{want.lock, want.grant, want.queue, want.places, want.shares, want.held, want.room}
			if got := d.names(key); *got != *want {
				t.Errorf("of %q behind %q: %+v", key, prefix, got)
			}
		}
	}
}

// The names that are remembered are those of the key, also where another took its place.
func TestRememberedNames(t *testing.T) {
	d := New(nil, &Options{Prefix: "p:"})
	for range 2 {
		for i := range 2 * len(d.recent) {
			for _, key := range []string{fmt.Sprint("k", i), fmt.Sprintf("{%d}x", i)} {
				n, k := d.names(key), d.keyed(key)
				stopIf(t, *k != *n || k.key != key, "of %q are remembered %+v", key, k)
				stopIf(t, d.keyed(key) != k, "the names of %q are made anew", key)
			}
		}
	}
	k := d.keyed("k")
	c := d.batchCall(k, "gone", nil)
	if c.Keys[0] = "changed"; k.all[0] != k.lock || len(c.Keys) != 8 {
		t.Errorf("%v, remembered are %v", c.Keys, k.all)
	}
}

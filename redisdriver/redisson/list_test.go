// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"slices"
	"testing"
)

// Hashes of others are looked at only as far as it takes to tell that they are no locks, whatever is in them.
func TestListPassesOverHashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const many, fields = 50, 500
	for i := range many {
		hash := []any{"HSET", i}
		for f := range fields {
			hash = append(hash, f, "x")
		}
		w.do(hash...)
	}
	w.do("ACL", "SETUSER", "u", "on", "nopass", "~k*", "~{k*", "~hasp.*", "~redisson_lock_*", "&*", "+@all")
	w.do("HSET", "hasp.redisson:{kx}", "x", "y")
	for kind := range Kind(len(kinds)) {
		d, narrow := w.driver(kind), w.over(w.client("u"), kind)
		a := ask("k")
		w.grant(d, a)
		w.do("CONFIG", "RESETSTAT")
		for _, d := range []*Driver{d, narrow} {
			var found []string
			for info, err := range d.List(w.ctx, "") {
				stopIf(t, err != nil, "%v: %v", kind, err)
				found = append(found, info.Key)
			}
			failIf(t, !slices.Equal(found, []string{"k"}), "%v: the locks %q", kind, found)
		}
		if n := w.calls(); n > 20*many {
			t.Errorf("%v: %d commands for %d hashes", kind, n, many)
		}
		w.release(d, a)
	}
}

// A large hash, or one with an empty field name, is no lock of a stranger's; a large one with the fields of a lock may be.
func TestListPassesOverLargeHashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	data, readers := []any{"HSET", "customers"}, []any{"HSET", "read", "mode", "read"}
	for n := range 1001 {
		data, readers = append(data, n, "x"), append(readers, thread(n), 1)
	}
	w.do(data...)
	w.do(readers...)
	w.do("HSET", "empty", "", "x")
	for kind := range Kind(len(kinds)) {
		var found []string
		for info, err := range w.driver(kind).List(w.ctx, "") {
			w.succeeds(err)
			found = append(found, info.Key)
		}
		failIf(t, !slices.Equal(found, []string{"read"}), "%v: the locks %q", kind, found)
	}
}

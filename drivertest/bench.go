// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import "testing"

// Bench measures an engine at the seam: a lock and a release of a key that
// nobody else wants, and a key that goes from one waiter to the next.
// Harness.Fake says nothing here.
func Bench(b *testing.B, h Harness) {
	h.Fake = false
	b.Run("Uncontended", func(b *testing.B) {
		e := newEnv(b, h)
		r := e.ask("k")
		for b.Loop() {
			r.Owner = e.ask("k").Owner
			e.grant(e.d, r)
			e.release(e.d, r)
		}
	})
	b.Run("Handoff", func(b *testing.B) {
		e := newEnv(b, h)
		if !needLine.Met(e.traits) {
			b.Skipf("%s does not promise this: needs the trait %s", e.traits.Engine, needLine.Trait)
		}
		holder := e.ask("k")
		e.grant(e.d, holder)
		for b.Loop() {
			next := e.ask("k")
			ch := e.watch(e.d, next)
			e.join(e.d, next, 0)
			e.release(e.d, holder)
			if ch != nil {
				e.hinted(ch)
			}
			e.turn(e.d, next, 0)
			holder = next
		}
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/contend"
)

// Bench measures a driver: a Try and a Release of an uncontended key, and a key
// that is handed from one waiter to the next; and hasp over it, with a key that is released
// each time, and a key that is kept. Harness.Fake has no effect here.
func Bench(b *testing.B, h Harness) {
	h.Fake = false
	b.Run("Uncontended", func(b *testing.B) {
		e := newEnv(b, h)
		r := e.ask("k")
		r.Settled = true
		for b.Loop() {
			r.Owner = e.ask("k").Owner
			e.grant(e.d, r)
			e.release(e.d, r)
		}
	})
	b.Run("Parallel", func(b *testing.B) {
		e := newEnv(b, h)
		var n atomic.Int64
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			r := e.ask(fmt.Sprint("k", n.Add(1)))
			r.Settled = true
			for pb.Next() {
				r.Owner = rand.Text()
				if res, err := contend.Try(e.ctx, e.d, r); err != nil || !res.Granted {
					b.Errorf("Try of a free key: %+v, %v", res, err)
					return
				}
				if err := contend.Release(e.ctx, e.d, r); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	for _, keep := range []time.Duration{0, time.Second} {
		name := "Lock"
		if keep > 0 {
			name = "LockKept"
		}
		b.Run(name, func(b *testing.B) {
			e := newEnv(b, h)
			c, o := e.client(nil), &hasp.LockOptions{Keep: keep}
			for b.Loop() {
				e.unlock(e.lock(c, o))
			}
		})
	}
	b.Run("Handoff", func(b *testing.B) {
		e := newEnv(b, h)
		if !needQueue.Met(e.d) {
			b.Skipf("%s does not promise this: needs the trait %s", e.traits.Engine, needQueue.Trait)
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

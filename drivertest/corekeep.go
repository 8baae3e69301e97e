// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/internal/fault"
)

// keptKey uses a key that is kept, as far as the engine reserves fences, and has it given back
// to one who waits.
func keptKey(e *env) {
	first := e.lock(e.client(nil), e.lasting())
	fence := first.Fence()
	e.unlock(first)
	rises := func(next uint64) {
		e.Helper()
		if e.traits.Fencing && next <= fence {
			e.Fatalf("the fence is %d after %d", next, fence)
		}
		fence = next
	}
	var tries atomic.Int64
	c := e.client(func(call fault.Call) (f fault.Fault) {
		if call.Op == fault.Try {
			tries.Add(1)
		}
		return f
	})
	o := e.short()
	o.Keep = e.long
	const uses = 10
	for range uses {
		lease := e.lock(c, o)
		rises(lease.Fence())
		e.unlock(lease)
	}
	if !e.inspect("k").Held { // one fence at a time, or a machine that stalled for a TTL
		c := e.client(nil)
		rises(e.lock(c, e.lasting()).Fence())
		return
	}
	if n := tries.Load(); n >= uses {
		e.Errorf("it is kept, and the store was asked %d times", n)
	}
	other := e.startLock(e.client(nil).Mutex("k", e.lasting()).Lock).granted(e.ttl)
	rises(other.Fence())
	back := e.begin(c, o)
	select {
	case <-back.done:
		e.Fatalf("two holders: %v, %v", back.lease, back.err)
	case <-time.After(e.ttl / 2): // enough for a Lock that does not wait to return
	}
	e.unlock(other)
	lease := back.granted(0)
	rises(lease.Fence())
	e.unlock(lease)
	if err := c.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	e.goneFrom(0)
}

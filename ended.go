// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"fmt"
	"sync"

	"github.com/hasplock/hasp/driver"
)

// ended takes from the engine which leases the store has ended, see
// [driver.Teller]: the end of a session may end thousands at once.
type ended struct {
	c *core

	mu    sync.Mutex
	heard map[driver.ID]uint64 // the largest fence of each; nil: nobody is at work on them
}

// hear notes a lease that is over. It does not block.
func (e *ended) hear(id driver.ID, fence uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard == nil {
		if !e.c.calls.Enter() {
			return // Close ends all leases
		}
		e.heard = make(map[driver.ID]uint64)
		go e.declare()
	}
	e.heard[id] = max(e.heard[id], fence)
}

// declare declares lost what was heard of. A lease that its caller does not have
// yet is missed, and lost at its first renewal.
func (e *ended) declare() {
	defer e.c.calls.Leave()
	e.mu.Lock()
	heard := e.heard
	e.heard = nil
	e.mu.Unlock()
	for _, m := range e.c.renewer.Members() {
		h, ok := m.(*hold)
		if !ok {
			continue
		}
		// An owner that was released may have asked again, with a larger fence.
		if fence, over := heard[h.req.ID()]; over && h.req.Fence <= fence {
			h.lose(fmt.Errorf("%w: it ended the lease", ErrNotHeld))
		}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"math"

	"github.com/hasplock/hasp/internal/ballot"
)

// slow is how much longer than the fastest node's the round trips of the queue
// node may be: every Try waits for its answer.
const slow = 8

// route chooses the queue node, of those that are in service and answer well: the
// first by the name of its store's life, which is the same for all clients, in
// whatever order they list the nodes. Those that fail Tries come last. When a majority
// is in service again, all waiters here are told: the pause after an error is longer.
func (d *Driver) route() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var queue *node
	readOnly := false
	serving, fastest := 0, int64(math.MaxInt64)
	for _, n := range d.nodes {
		if n.serving() {
			serving++
			fastest = min(fastest, n.trip.usual.Load())
		}
	}
	for _, n := range d.nodes {
		if !n.serving() || n.trip.usual.Load() > slow*fastest+int64(minTimeout/4) {
			continue
		}
		if refuses := n.readOnly.Load(); queue == nil || readOnly && !refuses || readOnly == refuses && n.lifeName() < queue.lifeName() {
			queue, readOnly = n, refuses
		}
	}
	if d.queue.Swap(queue) != queue {
		close(d.moved)
		d.moved = make(chan struct{})
	}
	few := serving <= len(d.nodes)/2
	if d.few && !few {
		for _, all := range d.waiters {
			for _, w := range all {
				w.tell()
			}
		}
	}
	d.few = few
}

// queueIndex is the queue node's number, or ballot.None.
func (d *Driver) queueIndex() int {
	if n := d.queue.Load(); n != nil {
		return n.index
	}
	return ballot.None
}

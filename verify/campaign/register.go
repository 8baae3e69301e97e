// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"sync"
)

// register is what a lock protects: a number that each holder reads and increments.
// It keeps two of them, one that compares fences and one that does not, which shows
// what a store without fences would have lost.
//
// The fenced one remembers the largest fence of any read or write, and refuses
// smaller ones. A reader is only refused if its fence is smaller than a writer's,
// because the fences of readers have no order.
type register struct {
	mu      sync.Mutex
	largest uint64
	wrote   uint64 // the largest fence of a writer
	now     value

	refused  int // requests to the fenced number
	written  int
	lost     []string // writes to the fenced number that overwrote another's, or came under a reader: a violation
	bareLost int      // the same for the bare number
}

// serve answers one request of a client.
func (r *register) serve(e event) answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.What == write { // whatever the fence says
		if e.Value.Bare != r.now.Bare {
			r.bareLost++
		}
		r.now.Bare = e.Value.Bare + 1
	}
	least := r.largest
	if e.Shared {
		least = r.wrote
	}
	if e.Fence < least {
		r.refused++
		return answer{Refused: true, Value: r.now}
	}
	r.largest = max(r.largest, e.Fence)
	if !e.Shared {
		r.wrote = e.Fence
	}
	if e.What == look && e.Value.Fenced != r.now.Fenced {
		r.lost = append(r.lost, fmt.Sprintf("the reader with fence %d read value %d, and then %d while it may still read", e.Fence, e.Value.Fenced, r.now.Fenced))
	}
	if e.What == write {
		r.written++
		if e.Value.Fenced != r.now.Fenced {
			r.lost = append(r.lost, fmt.Sprintf("the write with fence %d was made from value %d, and replaced %d", e.Fence, e.Value.Fenced, r.now.Fenced))
		}
		r.now.Fenced = e.Value.Fenced + 1
	}
	return answer{Value: r.now}
}

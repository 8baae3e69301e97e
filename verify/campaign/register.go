// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"sync"
)

// register is what a lock protects: a number that each holder reads, and sets
// to one more. It keeps two, one behind a fence and one bare, which shows what
// a store that compares no fences would have lost.
//
// The fenced one remembers the largest fence that it saw, in reads and writes,
// and refuses smaller ones; one who only reads is refused when its fence is
// smaller than that of one who may write: the fences of readers have no order.
type register struct {
	mu      sync.Mutex
	largest uint64
	wrote   uint64 // the largest of those who may write
	now     value

	refused  int // requests of the fenced one
	written  int
	lost     []string // writes that the fenced one took over another's, or under a reader: a violation
	bareLost int      // those of the bare one
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
		r.lost = append(r.lost, fmt.Sprintf("the reader with fence %d read value %d, and finds %d while it still may read", e.Fence, e.Value.Fenced, r.now.Fenced))
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

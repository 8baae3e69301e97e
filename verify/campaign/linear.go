// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// mutexState is the state of a fenced mutex.
type mutexState struct {
	held bool
	last uint64 // the largest fence given
}

// mutexOp is an operation on it: a grant with its fence, or its end.
type mutexOp struct {
	end   bool
	fence uint64
}

// fencedMutex grants a free key with a fence above all before. Without exclusive
// it only hands out fences: what is left of a lock when an assumption broke.
func fencedMutex(exclusive bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return mutexState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(mutexState), input.(mutexOp)
			if op.end {
				return s.held && s.last == op.fence, mutexState{last: s.last}
			}
			return !s.held && op.fence > s.last, mutexState{held: exclusive, last: op.fence}
		},
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(input, _ any) string {
			op := input.(mutexOp)
			if op.end {
				return fmt.Sprintf("end of %d", op.fence)
			}
			return fmt.Sprintf("lock: %d", op.fence)
		},
	}
}

// linearLimit bounds one check.
const linearLimit = 10 * time.Second

// notLinear finds keys whose history no fenced mutex can have. unknown counts
// the keys for which the search took too long.
//
// The end of a hold lies between the call of Release, or the deadline, and the
// return of that Release; of a lease that was lost, at any time after.
func notLinear(holds []hold, exclusive bool) (found []string, unknown int) {
	for key, hs := range byKey(holds) {
		var ops []porcupine.Operation
		for _, h := range hs {
			if h.To < h.From {
				continue
			}
			ops = append(ops, porcupine.Operation{ClientId: h.Client, Input: mutexOp{fence: h.Fence}, Call: int64(h.Asked), Return: int64(h.From)})
			if !exclusive {
				continue
			}
			gone := int64(math.MaxInt64)
			if h.Released != 0 {
				gone = int64(h.Released)
			}
			ops = append(ops, porcupine.Operation{ClientId: h.Client, Input: mutexOp{end: true, fence: h.Fence}, Call: int64(h.To), Return: gone})
		}
		switch porcupine.CheckOperationsTimeout(fencedMutex(exclusive), ops, linearLimit) {
		case porcupine.Illegal:
			found = append(found, fmt.Sprintf("no fenced mutex has the history of %s (%d operations)", key, len(ops)))
		case porcupine.Unknown:
			unknown++
		}
	}
	return found, unknown
}

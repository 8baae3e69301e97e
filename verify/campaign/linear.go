// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/hasplock/hasp/internal/history"
)

// lockState is the state of a fenced read-write lock.
type lockState struct {
	writer  uint64 // the writer's fence; 0: there is none
	readers int
	last    uint64 // the largest fence granted
	wrote   uint64 // the largest granted to a writer
}

// lockOp is an operation on the lock.
type lockOp struct {
	kind   lockKind
	fence  uint64
	shared bool // of a grant
}

type lockKind uint8

const (
	grant     lockKind = iota
	downgrade          // of the writer
	maybe              // a downgrade with unknown outcome
	end                // of a hold
)

// fencedLock models a lock that grants a free key to any owner, and a key that readers
// hold to another reader. A writer's fence is above all before it; a reader's is above those
// of all writers before it. Without exclusive it only mints fences, which is all that
// is promised when an assumption is broken.
func fencedLock(exclusive bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(lockState), input.(lockOp)
			if op.kind == grant {
				return s.grant(op, exclusive)
			}
			return s.leave(op)
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

func (s lockState) grant(op lockOp, exclusive bool) (bool, lockState) {
	free, above := s.writer == 0, s.wrote
	if !op.shared {
		free, above = free && s.readers == 0, s.last
	}
	if !free || op.fence <= above {
		return false, s
	}
	s.last = max(s.last, op.fence)
	switch {
	case !op.shared:
		s.wrote = op.fence
		if exclusive {
			s.writer = op.fence
		}
	case exclusive:
		s.readers++
	}
	return true, s
}

func (s lockState) leave(op lockOp) (bool, lockState) {
	writes := s.writer == op.fence
	switch {
	case writes && op.kind == end:
		s.writer = 0
	case writes:
		s.writer = 0
		s.readers++
	case op.kind == downgrade:
		return false, s
	case op.kind == end:
		s.readers--
	}
	return s.readers >= 0, s
}

// never is the return time of an operation that may take effect at any time.
const never Mono = math.MaxInt64

// linearLimit bounds one check.
const linearLimit = 10 * time.Second

// notLinear finds keys with a history that is not linearizable. unknown counts the keys
// for which the search took too long.
//
// The end of a hold lies between the call of Release, or the deadline, and the
// return of that Release; a lease that was lost may end at any time after.
func notLinear(holds []history.Hold, exclusive bool) (found []string, unknown int) {
	byKey := map[string][]porcupine.Operation{}
	for _, h := range holds {
		if h.To.Before(h.From) {
			continue
		}
		add := func(op lockOp, call, back int64) {
			byKey[h.Key] = append(byKey[h.Key], porcupine.Operation{Input: op, Call: call, Return: back})
		}
		add(lockOp{kind: grant, fence: h.Fence, shared: h.Shared}, h.Asked, h.Granted)
		if !exclusive {
			continue
		}
		tick := func(t time.Time) int64 { return h.Granted + int64(t.Sub(h.From)) }
		switch {
		case !h.Lowered.IsZero():
			add(lockOp{kind: downgrade, fence: h.Fence}, tick(h.Down), tick(h.Lowered))
		case !h.Down.IsZero():
			add(lockOp{kind: maybe, fence: h.Fence}, tick(h.Down), int64(never))
		}
		back := int64(never)
		if !h.Released.IsZero() {
			back = tick(h.Released)
		}
		add(lockOp{kind: end, fence: h.Fence}, tick(h.To), back)
	}
	for key, ops := range byKey {
		switch porcupine.CheckOperationsTimeout(fencedLock(exclusive), ops, linearLimit) {
		case porcupine.Illegal:
			found = append(found, fmt.Sprintf("no fenced lock has the history of %s (%d operations)", key, len(ops)))
		case porcupine.Unknown:
			unknown++
		}
	}
	return found, unknown
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// MaxBoxes bounds the subscriptions of a driver in a cluster, where each hash slot
// needs its own. Waiters in further slots poll.
const MaxBoxes = 32

// Boxes are the inboxes of a driver: one, or in a cluster one for each hash slot with waiters.
type Boxes[B interface {
	comparable
	Use(n int) int
	Idle() bool // no waiter uses it
	Run()
	Close()
}] struct {
	New     func(hashSlot int) B // -1 outside a cluster
	Running *sync.WaitGroup

	sync.Mutex
	Open   map[int]B
	closed bool
}

// Get returns the inbox for a hash slot, a new one if need be, or nil when there
// are too many. It has a user more, until Use(-1).
func (b *Boxes[B]) Get(hashSlot int) (in B, err error) {
	b.Lock()
	defer b.Unlock()
	if b.closed {
		return in, driver.ErrClosed
	}
	in, ok := b.Open[hashSlot]
	if !ok {
		if len(b.Open) >= MaxBoxes && !b.makeRoom() {
			return in, nil
		}
		in = b.New(hashSlot)
		b.Open[hashSlot] = in
		b.Running.Go(in.Run)
	}
	in.Use(1)
	return in, nil
}

// makeRoom closes an idle inbox.
func (b *Boxes[B]) makeRoom() bool {
	for hashSlot, in := range b.Open {
		if in.Idle() {
			delete(b.Open, hashSlot)
			in.Close()
			return true
		}
	}
	return false
}

// Find returns the inbox for a hash slot, or nil.
func (b *Boxes[B]) Find(hashSlot int) B {
	b.Lock()
	defer b.Unlock()
	return b.Open[hashSlot]
}

// Beside runs f beside its caller, unless they were closed. Close waits for it.
func (b *Boxes[B]) Beside(f func()) {
	b.Lock()
	defer b.Unlock()
	if !b.closed {
		b.Running.Go(f)
	}
}

// Close ends the inboxes, and waits for all that runs, for a second at most.
func (b *Boxes[B]) Close() {
	ended := make(chan struct{})
	go func() {
		b.Lock()
		b.closed = true
		for _, in := range b.Open {
			in.Close()
		}
		b.Unlock()
		b.Running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Second):
	}
}

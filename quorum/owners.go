// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/ballot"
)

// owner is an owner with a ballot.
type owner struct {
	id   driver.ID
	turn chan struct{} // held by the Try under way

	mu sync.Mutex
	ballot.Ballot
}

// owners are the owners that asked or renewed a lease here, and were not released.
type owners struct {
	mu    sync.Mutex
	all   map[driver.ID]*owner
	sweep int // look for those that expired when there are so many
}

// open returns an owner, a new one if need be.
func (os *owners) open(d *Driver, c driver.Claim) *owner {
	os.mu.Lock()
	defer os.mu.Unlock()
	id := c.ID()
	o := os.all[id]
	if o == nil {
		if len(os.all) >= os.sweep {
			os.clean(d)
		}
		o = &owner{id: id, turn: make(chan struct{}, 1), Ballot: ballot.New(len(d.nodes))}
		os.all[id] = o
	}
	return o
}

// clean drops owners that vanished: nothing of them is left anywhere. mu is held.
func (os *owners) clean(d *Driver) {
	now := d.now()
	for id, o := range os.all {
		o.mu.Lock()
		if o.Expired(now) {
			delete(os.all, id)
		}
		o.mu.Unlock()
	}
	os.sweep = 2*len(os.all) + 1024
}

// get returns an owner, or nil.
func (os *owners) get(c driver.Claim) *owner {
	os.mu.Lock()
	defer os.mu.Unlock()
	return os.all[c.ID()]
}

// drop forgets an owner.
func (os *owners) drop(id driver.ID) {
	os.mu.Lock()
	delete(os.all, id)
	os.mu.Unlock()
}

// dropIfBlank forgets an owner that never asked.
func (os *owners) dropIfBlank(o *owner) {
	os.mu.Lock()
	defer os.mu.Unlock()
	if os.all[o.id] == o && len(o.turn) == 0 && o.blank() {
		delete(os.all, o.id)
	}
}

// dropIfOver forgets an owner that was released, once nothing of it is under way.
func (os *owners) dropIfOver(o *owner) {
	o.mu.Lock()
	over := o.Over()
	o.mu.Unlock()
	if !over {
		return
	}
	os.mu.Lock()
	defer os.mu.Unlock()
	if os.all[o.id] == o && len(o.turn) == 0 {
		delete(os.all, o.id)
	}
}

// enter begins a Try: one at a time.
func (o *owner) enter(ctx context.Context) error {
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *owner) leave() { <-o.turn }

// blank says that no node has anything of the owner, and none will.
func (o *owner) blank() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Blank()
}

// inQueue says that the owner has a place, as far as is known.
func (o *owner) inQueue() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	place, reserved := o.Place()
	return place != ballot.None && !reserved
}

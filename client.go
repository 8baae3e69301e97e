// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/gate"
	"github.com/hasplock/hasp/internal/keepalive"
	"github.com/hasplock/hasp/internal/lifetime"
)

// Client creates locks in one store. It is safe for use by many goroutines; a
// program needs one for each store. It has one goroutine while it holds leases or
// waits, and none otherwise. Its zero value panics: New makes one.
type Client struct {
	core    *core
	cohorts cohorts
}

// New returns a client of the store behind d. It does no I/O, and takes ownership
// of d: Close closes it. nil options mean the defaults. An error says that the
// options are invalid, or that the driver's configuration cannot work.
func New(d driver.Driver, o *Options) (*Client, error) {
	if d == nil {
		return nil, errors.New("hasp: new: the driver is nil")
	}
	if o == nil {
		o = &Options{}
	}
	if o.MaxSilence < 0 {
		return nil, fmt.Errorf("hasp: new: MaxSilence is %v: it must be positive, or 0 for no bound", o.MaxSilence)
	}
	if o.MaxRefused < 0 {
		return nil, fmt.Errorf("hasp: new: MaxRefused is %v: it must be positive, or 0 for the default of %v", o.MaxRefused, defaultRefused)
	}
	c := newCore(d, o)
	if err := d.Check(); err != nil {
		return nil, c.fail("new", "", err)
	}
	if teller, ok := d.(driver.Teller); ok {
		teller.Tell((&ended{c: c}).hear)
	}
	client := &Client{core: c}
	client.cohorts.c, c.shelf = c, &client.cohorts
	return client, nil
}

// made returns what the parts of the client share. It panics for a Client that New did not make.
func (c *Client) made() *core {
	if c == nil || c.core == nil {
		panic("hasp: this Client was not made by New")
	}
	return c.core
}

// Traits says what the store promises as it is configured, and, of MaxTTL and SessionTTL, as it has decided since it was reached.
func (c *Client) Traits() driver.Traits { return c.made().drv.Traits() }

// Close ends every wait (ErrClosed), stops renewal, ends the contexts of all
// leases (cause ErrClosed) and releases them, within about 5 seconds in all; a
// key that Do holds is released only after its function returned. The error names
// what could not be released: the store keeps that until its TTL is over. Closing
// twice is harmless. What the caller gave to the driver stays open.
func (c *Client) Close() error { return c.made().close() }

func (c *core) close() error {
	if !c.calls.Close() {
		return nil
	}
	limit, cancel := context.WithTimeout(c.calls.Base, releaseLimit)
	defer cancel()
	// First every context, and only then the store: the renewer no longer
	// watches deadlines.
	var ended, running []*hold
	for _, m := range c.renewer.Shut() {
		held, ok := m.(interface{ holds() *hold })
		if !ok {
			continue // a place in the queue: its Lock gives it back
		}
		h := held.holds()
		switch done, runs := h.finish(lifetime.Closed, c.fail("hold", h.req.Key, ErrClosed)); {
		case runs:
			running = append(running, h)
		case done: // otherwise its Release is under way
			ended = append(ended, h)
		}
	}
	err := c.releaseAll(limit, ended)
	select {
	case <-c.calls.Idle(): // every wait has ended and cleaned up behind itself
	case <-limit.Done():
	}
	c.calls.Stop()
	select {
	case <-c.calls.Idle(): // the driver ends what Base ended
	case <-time.After(time.Second):
	}
	err = errors.Join(err, c.shelf.notFreed())
	for _, h := range running {
		err = errors.Join(err, h.leftover())
	}
	return errors.Join(err, c.fail("close", "", c.drv.Close()))
}

// core is what all parts of a client share: its store, and what is under way.
type core struct {
	drv         driver.Driver
	traits      driver.Traits
	observe     func(context.Context, *Event)
	recordTaken bool
	maxSilence  time.Duration
	maxRefused  time.Duration
	heard       atomic.Bool // the store has given a good answer
	now         clock.Clock
	waits       *admission.Waits
	labels      labels
	calls       *gate.Gate
	renewer     *keepalive.Loop
	cleanups    *cleanups
	busy        busy
	shelf       shelf
}

// shelf has the keys that the client keeps for no caller.
type shelf interface {
	clear(ctx context.Context, key string) // gives back what is kept of the key, and waits for that until ctx ends
	has(key string) bool                   // whether it is kept, or was when its lease was granted
	notFreed() error                       // what could not be given back during Close
}

func newCore(d driver.Driver, o *Options) *core {
	c := &core{drv: d, traits: d.Traits(), observe: o.Observe, recordTaken: o.RecordTaken, maxSilence: o.MaxSilence,
		maxRefused: cmp.Or(o.MaxRefused, defaultRefused), now: clock.Cheap(), waits: admission.New(o.StateDir, o.StateFailed), calls: gate.New()}
	c.renewer = keepalive.New(d.Renew, func() clock.Instant { return c.now() }, c.calls)
	c.cleanups = &cleanups{c: c}
	return c
}

// events are used again, so that an observer costs no memory for each of its calls.
var events = sync.Pool{New: func() any { return new(Event) }}

func (c *core) emit(ctx context.Context, e Event) {
	if c.observe == nil {
		return
	}
	if ctx == nil {
		ctx = context.Background()
	}
	e.Engine = c.traits.Engine
	shown := events.Get().(*Event)
	*shown = e
	c.observe(ctx, shown)
	*shown = Event{}
	events.Put(shown)
}

// ended takes from the engine which leases the store has ended, see
// [driver.Teller]: the end of a session may end thousands at once.
type ended struct {
	c *core

	mu    sync.Mutex
	heard map[driver.ID]uint64 // the largest fence of each; nil: no declare is due
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
		held, ok := m.(interface{ holds() *hold })
		if !ok {
			continue
		}
		h := held.holds()
		// An owner that was released may have asked again, with a larger fence.
		if fence, over := heard[h.req.ID()]; over && h.req.Fence <= fence {
			h.lose(fmt.Errorf("%w: it ended the lease", ErrNotHeld))
		}
	}
}

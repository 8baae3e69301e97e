// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/ballot"
)

// fanout is one request to some nodes at once. Those that are silent for a node
// time-out are given up; what they answer later still takes effect.
type fanout struct {
	d      *Driver
	ctx    context.Context // ends when each node answered, or was given up
	cancel context.CancelFunc
	begun  time.Duration
	limit  time.Duration // the node time-out
	until  time.Duration // nodes that are only busy are waited for until then; 0: for as long as they say anything
	silent func(n *node) // is called with each node that was given up; may be nil

	mu    sync.Mutex
	waits ballot.Set // neither answered nor given up
	due   time.Duration
	timer *time.Timer
}

// fanout begins a request about a lease of ttl to some nodes. most bounds how long nodes
// may take that answer others; 0: as long as parent.
func (d *Driver) fanout(parent context.Context, nodes ballot.Set, ttl, most time.Duration, silent func(n *node)) *fanout {
	f := &fanout{d: d, begun: d.now(), limit: d.timeout(ttl), silent: silent, waits: nodes}
	f.ctx, f.cancel = context.WithCancel(parent)
	if nodes == 0 {
		f.cancel()
		return f
	}
	for _, n := range d.nodes {
		if nodes.Has(n.index) {
			f.limit = max(f.limit, n.timeout(ttl))
		}
	}
	if most > 0 {
		f.until = f.begun + most
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due = f.begun + f.limit
	f.timer = time.AfterFunc(f.limit, f.look)
	return f
}

// patient lets nodes be silent for so long, at least.
func (f *fanout) patient(limit time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waits != 0 {
		f.limit = max(f.limit, limit)
		f.due = f.begun + f.limit
		f.timer.Reset(f.limit)
	}
}

// most is how long a node that is busy, and answers others, may take for a request about
// a lease of ttl.
func (d *Driver) most(ttl time.Duration) time.Duration { return max(d.timeout(ttl), ttl/growthShare) }

// ended judges how the request to a node ended. It is false when the node was given up before.
func (f *fanout) ended(n *node, err error) bool {
	if err == nil || errors.Is(err, driver.ErrNotHeld) {
		n.answered(f.begun)
	} else if f.ctx.Err() == nil {
		n.failed(f.begun, err)
	}
	return f.over(n)
}

// hears judges one of many answers of a node.
func (f *fanout) hears(n *node, err error) {
	switch {
	case err == nil, errors.Is(err, driver.ErrNotHeld):
		n.hears()
	case errors.Is(err, voting.ErrNotVoting):
		n.leave(&admission.HeldBack{})
	case f.ctx.Err() == nil:
		n.failed(f.begun, err)
	}
}

// over takes a node from those that are waited for. It is false when it was given up
// before.
func (f *fanout) over(n *node) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.waits.Has(n.index) {
		return false
	}
	f.waits.Drop(n.index)
	if f.waits == 0 {
		f.timer.Stop()
		f.cancel()
	}
	return true
}

// look gives up the nodes that were silent for a node time-out. When it comes
// late, it is this process that stood still, and may have answers to read.
func (f *fanout) look() {
	now, over := f.d.now(), f.ctx.Err() != nil
	f.mu.Lock()
	if !over && now < f.due { // another look was just made, or it is early
		f.mu.Unlock()
		return
	}
	late := now-f.due > f.limit/2
	next := f.limit
	var silent []*node
	for _, n := range f.d.nodes {
		if !f.waits.Has(n.index) {
			continue
		}
		quiet := now - max(f.begun, n.lastHeard())
		switch {
		case over:
			silent = append(silent, n)
		case late:
		case quiet >= f.limit || f.until != 0 && now >= f.until:
			silent = append(silent, n)
		default:
			next = min(next, max(f.limit-quiet, f.limit/8))
		}
	}
	f.due = now + next
	f.mu.Unlock()
	for _, n := range silent {
		if !over {
			n.failed(f.begun, context.DeadlineExceeded)
		}
		if f.over(n) && f.silent != nil {
			f.silent(n)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waits != 0 {
		f.timer.Reset(next)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

const (
	// maxListen is how long a subscription may take, however long nodes may:
	// the waiter is not in the queue until it has it.
	maxListen = 3 * time.Second
	// deafPause is how long after a subscription that failed the next is tried.
	deafPause = time.Second
)

// Watch listens where the queue is, and follows it when it moves; see
// [driver.Driver].
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if err := d.check(ctx, c); err != nil {
		return nil, err
	}
	w := &watch{d: d, ctx: ctx, claim: c, out: make(chan driver.Hint, 1)}
	d.arrives(w)
	d.meet(ctx)
	n, moved := d.queueNode()
	e := w.listen(n)
	<-e.ready
	err := ctx.Err()
	if err == nil && !d.spawn(func() { w.follow(e, moved) }) {
		err = context.Canceled
	}
	if err != nil {
		e.leave()
		d.departs(w)
		return nil, err
	}
	return w.out, nil
}

// meet asks the nodes for their records where no Try has: the queue is on one of them.
func (d *Driver) meet(ctx context.Context) {
	if d.met.Load() {
		return
	}
	var wg sync.WaitGroup
	for _, n := range d.nodes {
		if n.rec != nil && n.serving() {
			wg.Go(func() { n.introduce(placeTime) })
		}
	}
	known := make(chan struct{})
	if !d.spawn(func() { wg.Wait(); close(known) }) {
		return
	}
	select {
	case <-known:
	case <-ctx.Done():
	}
}

// queueNode says where the queue is, and when it moves.
func (d *Driver) queueNode() (queue *node, moved <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Load(), d.moved
}

// watch is one owner's.
type watch struct {
	d     *Driver
	ctx   context.Context
	claim driver.Claim
	out   chan driver.Hint
}

// subscription is at one node.
type subscription struct {
	n     *node
	leave context.CancelFunc

	ready chan struct{} // closed when it is known how it went
	in    <-chan driver.Hint
	deaf  bool // the node did not let us listen
}

// listen subscribes at a node; nil: at none. Where that fails, the node is not
// heard, and its waiters ask when their moment comes.
func (w *watch) listen(n *node) *subscription {
	ctx, cancel := context.WithCancel(w.ctx)
	stop := context.AfterFunc(w.d.life, cancel)
	e := &subscription{n: n, leave: func() { stop(); cancel() }, ready: make(chan struct{})}
	if n == nil || !w.d.spawn(func() { defer close(e.ready); w.subscribe(ctx, cancel, e) }) {
		close(e.ready)
	}
	return e
}

func (w *watch) subscribe(ctx context.Context, cancel context.CancelFunc, e *subscription) {
	limit := time.AfterFunc(min(w.d.probeLimit(), maxListen), cancel) // the first opens a connection
	begun := w.d.now()
	in, err := e.n.drv.Watch(ctx, w.claim)
	late := !limit.Stop()
	switch {
	case err == nil && !late:
		e.in = in
		return
	case late:
		err = context.DeadlineExceeded
	case ctx.Err() != nil:
		return // the waiter no longer wants it
	}
	e.deaf = true
	e.leave()
	e.n.failed(begun, err)
}

// follow passes hints on until the watch is over. It stays at the old node until it
// is heard at the new one: a node takes the place of an owner that is not heard.
func (w *watch) follow(now *subscription, moved <-chan struct{}) {
	next := now // the latest
	defer func() { now.leave(); next.leave(); w.d.departs(w) }()
	for {
		var again <-chan time.Time
		var ready <-chan struct{}
		switch {
		case next != now:
			ready = next.ready
		case now.deaf:
			again = time.After(deafPause)
		}
		select {
		case <-now.in:
		case <-ready:
			now.leave()
			now = next
		case <-again:
			next = w.listen(now.n)
			continue
		case <-moved:
			var n *node
			n, moved = w.d.queueNode()
			switch {
			case n == now.n && !now.deaf: // back again
				if next != now {
					next.leave()
					next = now
				}
			case n == next.n && next != now: // on its way there
				continue
			default:
				if next != now {
					next.leave()
				}
				next = w.listen(n)
				continue
			}
		case <-w.ctx.Done():
			return
		case <-w.d.life.Done():
			return
		}
		w.tell()
	}
}

// tell gives a hint of its own: a node's handover is a vote, and no lease.
func (w *watch) tell() { driver.Hint{}.Send(w.out) }

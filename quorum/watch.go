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
	// whoever waits for it is not in line yet.
	maxListen = 3 * time.Second
	// deafPause is how long after a subscription that failed the next is tried.
	deafPause = time.Second
)

// Watch listens where the line is, and follows it when it moves; see
// [driver.Driver].
func (d *Driver) Watch(ctx context.Context, r driver.Request) (<-chan struct{}, error) {
	if err := d.check(ctx, r); err != nil {
		return nil, err
	}
	d.meet(ctx, r.TTL)
	w := &watch{d: d, ctx: ctx, r: r, out: make(chan struct{}, 1)}
	w.listen()
	if err := ctx.Err(); err != nil {
		w.leave()
		return nil, err
	}
	if !d.spawn(w.follow) {
		w.leave()
		return nil, context.Canceled
	}
	return w.out, nil
}

// meet asks the nodes who they are where no Try has: the line is on one of them.
func (d *Driver) meet(ctx context.Context, ttl time.Duration) {
	if d.met.Load() {
		return
	}
	var wg sync.WaitGroup
	for _, n := range d.nodes {
		if n.rec != nil && n.serving() {
			wg.Go(func() { n.introduce(max(ttl, minTTL)) })
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

// watch is one owner's.
type watch struct {
	d   *Driver
	ctx context.Context
	r   driver.Request
	out chan struct{}

	n     *node // where it listens; nil: nowhere
	in    <-chan struct{}
	moved <-chan struct{} // the line is somewhere else
	deaf  bool            // the node did not let us listen
	leave context.CancelFunc
}

// listen subscribes where the line is now. Where that fails, the node is not
// heard, and its waiters ask when their moment comes.
func (w *watch) listen() {
	w.d.mu.Lock()
	w.moved = w.d.moved
	w.d.mu.Unlock()
	w.n, w.in, w.deaf, w.leave = w.d.head.Load(), nil, false, func() {}
	if w.n == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	limit := time.AfterFunc(min(w.d.probeLimit(), maxListen), cancel) // the first opens a connection
	stop := context.AfterFunc(w.d.life, cancel)
	begun := mono()
	in, err := w.n.drv.Watch(ctx, w.r)
	if !limit.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	w.leave = func() { stop(); cancel() }
	if err != nil {
		w.deaf = true
		w.leave()
		if w.ctx.Err() == nil && w.d.life.Err() == nil {
			w.n.failed(begun, err)
		}
		return
	}
	w.in = in
}

// follow passes hints on until the watch is over.
func (w *watch) follow() {
	for {
		var again <-chan time.Time
		if w.deaf {
			again = time.After(deafPause)
		}
		select {
		case <-w.in:
		case <-again:
			w.leave()
			w.listen()
		case <-w.moved:
			w.leave()
			w.listen()
		case <-w.ctx.Done():
			w.leave()
			return
		case <-w.d.life.Done():
			w.leave()
			return
		}
		select {
		case w.out <- struct{}{}:
		default: // one that was not looked at yet says the same
		}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// answer is a node's to a Vote or a Withdraw.
type answer struct {
	n   *node
	res driver.Result // of a Vote
	err error
}

// wave is one request to many nodes at once. Whoever sent it reads got until it
// knows enough; the answers that come later still take effect.
type wave struct {
	d      *Driver
	ctx    context.Context // ends when everybody answered, or was given up
	cancel context.CancelFunc
	begun  int64
	limit  int64        // the node time-out
	until  int64        // nodes that are only busy are waited for until then
	got    chan *answer // each node's, or errSilent of one that was given up; room for all

	mu    sync.Mutex
	waits set // neither answered nor given up
	due   int64
	timer *time.Timer
}

// newWave begins a wave about a lease of ttl.
func (d *Driver) newWave(ttl time.Duration) *wave {
	w := &wave{d: d, begun: mono(), got: make(chan *answer, len(d.nodes))}
	limit := d.timeout(ttl)
	w.until = w.begun + int64(max(limit, ttl/growthShare))
	w.ctx, w.cancel = context.WithCancel(d.life)
	return w
}

// send hands the wave to each node of a set. begin starts the request and calls
// done once, at any time.
func (w *wave) send(nodes []*node, ttl time.Duration, begin func(n *node, done func(driver.Result, error))) {
	if len(nodes) == 0 {
		w.cancel()
		return
	}
	for _, n := range nodes {
		w.waits.add(n)
		w.limit = max(w.limit, int64(n.timeout(ttl)))
	}
	w.due = w.begun + w.limit
	w.mu.Lock()
	w.timer = time.AfterFunc(time.Duration(w.limit), w.look)
	w.mu.Unlock()
	for _, n := range nodes {
		begin(n, func(res driver.Result, err error) { w.came(n, res, err) })
	}
}

// came takes the answer of a node.
func (w *wave) came(n *node, res driver.Result, err error) {
	if err == nil || errors.Is(err, driver.ErrNotHeld) {
		n.answered(w.begun)
	} else if w.d.life.Err() == nil {
		n.failed(w.begun, err)
	}
	w.pass(&answer{n: n, res: res, err: err})
}

// pass gives an answer to whoever waits for it, once for each node.
func (w *wave) pass(a *answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.waits.has(a.n) {
		return
	}
	w.waits.drop(a.n)
	w.got <- a
	if w.waits == 0 {
		w.timer.Stop()
		w.cancel()
	}
}

// look gives up the nodes that were silent for a node time-out. When it comes
// late, it is this process that stood still, and may have answers to read.
func (w *wave) look() {
	now := mono()
	w.mu.Lock()
	late := now-w.due > w.limit/2
	next := w.limit
	var silent []*node
	for _, n := range w.waits.among(w.d.nodes) {
		quiet := now - max(w.begun, n.heard.Load())
		switch {
		case late:
		case quiet >= w.limit || now >= w.until:
			silent = append(silent, n)
		default:
			next = min(next, max(w.limit-quiet, w.limit/8))
		}
	}
	w.due = now + next
	w.mu.Unlock()
	for _, n := range silent {
		n.failed(w.begun, context.DeadlineExceeded)
		w.pass(&answer{n: n, err: errSilent})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waits != 0 {
		w.timer.Reset(time.Duration(next))
	}
}

// among returns the nodes of a set.
func (s set) among(nodes []*node) []*node {
	some := make([]*node, 0, len(nodes))
	for _, n := range nodes {
		if s.has(n) {
			some = append(some, n)
		}
	}
	return some
}

// startVote begins a Vote at the node.
func (n *node) startVote(ctx context.Context, r driver.VoteRequest, done func(driver.Result, error)) {
	if n.async != nil {
		n.async.StartVote(ctx, r, done)
	} else if !n.d.spawn(func() { done(n.drv.Vote(ctx, r)) }) {
		done(driver.Result{}, context.Canceled)
	}
}

// startWithdraw begins a Withdraw at the node.
func (n *node) startWithdraw(ctx context.Context, r driver.WithdrawRequest, done func(driver.Result, error)) {
	if n.async != nil {
		n.async.StartWithdraw(ctx, r, func(err error) { done(driver.Result{}, err) })
	} else if !n.d.spawn(func() { done(driver.Result{}, n.drv.Withdraw(ctx, r)) }) {
		done(driver.Result{}, context.Canceled)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package gate counts the calls and the background work of a client, so that Close
// refuses new calls and waits for the rest.
package gate

import (
	"context"
	"sync"

	"github.com/hasplock/hasp/driver"
)

// Gate counts what is under way. It is safe for use by many goroutines.
type Gate struct {
	// Open ends when Close begins: so do all waits.
	Open context.Context
	// Base ends when Close is over: for work that outlives its caller.
	Base context.Context

	shut, stop context.CancelFunc

	mu     sync.Mutex
	closed bool
	ops    int           // calls and background work under way
	idle   chan struct{} // closed when closed and ops is 0
}

// New returns an open gate.
func New() *Gate {
	g := &Gate{idle: make(chan struct{})}
	g.Open, g.shut = context.WithCancel(context.Background())
	g.Base, g.stop = context.WithCancel(context.Background())
	return g
}

// Enter counts a call in, unless Close has begun.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.ops++
	return true
}

// EnterLate is Enter for the clean-up of a call that was let in: Close waits
// for it, too. It must be called before that call's Leave.
func (g *Gate) EnterLate() {
	g.mu.Lock()
	g.ops++
	g.mu.Unlock()
}

// Leave counts a call out.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ops--; g.ops == 0 && g.closed {
		close(g.idle)
	}
}

// During counts a call in, and returns a context that ends with ctx and when
// Close begins; done must be called after the call.
func (g *Gate) During(ctx context.Context) (own context.Context, done func(), err error) {
	if ctx == nil {
		panic("hasp: the context is nil")
	}
	if !g.Enter() {
		return nil, nil, driver.ErrClosed
	}
	own, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.Open, func() { cancel(driver.ErrClosed) })
	return own, func() { stop(); cancel(nil); g.Leave() }, nil
}

// Close refuses calls from now on and ends Open; false when it was closed before.
func (g *Gate) Close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.closed = true
	g.shut()
	if g.ops == 0 {
		close(g.idle)
	}
	return true
}

// Idle is closed once nothing is under way in a closed gate.
func (g *Gate) Idle() <-chan struct{} { return g.idle }

// Stop ends Base.
func (g *Gate) Stop() { g.stop() }

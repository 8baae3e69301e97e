// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "context"

// leaseCtx is a context that ends with its lease.
type leaseCtx struct {
	context.Context
	lease  *Lease
	cancel context.CancelCauseFunc
	stop   func() bool // forgets what watches the parent
}

// holdKey asks a context for a client's hold of a key.
type holdKey struct {
	c   *Client
	key string
}

// Value answers holdKey, and passes on the rest.
func (x *leaseCtx) Value(k any) any {
	if q, ok := k.(holdKey); ok && q.c == x.lease.h.c && q.key == x.lease.h.req.Key && !x.lease.gone() {
		return x.lease.h
	}
	return x.Context.Value(k)
}

// Context returns a context that ends with parent, with Release of this lease
// (cause context.Canceled), with the client (ErrClosed), and Lead before the
// lease's deadline (ErrLost), whatever the store or the network do; ask
// context.Cause. A context of a lease costs memory until one of these comes.
func (l *Lease) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	x := &leaseCtx{Context: ctx, lease: l, cancel: cancel}
	h := l.h
	_ = h.err() // declares a loss that nobody saw yet
	h.mu.Lock()
	end := h.end
	if l.released {
		end = context.Canceled
	}
	if end == nil {
		if h.ctxs == nil {
			h.ctxs = make(map[*leaseCtx]struct{})
		}
		h.ctxs[x] = struct{}{}
		x.stop = context.AfterFunc(parent, x.forget)
	}
	h.mu.Unlock()
	if end != nil {
		cancel(end)
	}
	return x
}

// forget frees what the lease keeps of a context whose parent ended.
func (x *leaseCtx) forget() {
	h := x.lease.h
	h.mu.Lock()
	delete(h.ctxs, x)
	h.mu.Unlock()
}

func (l *Lease) gone() bool {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.released && l.h.end == nil
}

// takeCtxs removes and returns the contexts that pick wants. h.mu is held.
func (h *hold) takeCtxs(pick func(*leaseCtx) bool) []*leaseCtx {
	var taken []*leaseCtx
	for x := range h.ctxs {
		if pick(x) {
			taken = append(taken, x)
			delete(h.ctxs, x)
		}
	}
	return taken
}

// endAll ends contexts with a cause. No lock is held: whoever waits for them
// runs.
func endAll(ctxs []*leaseCtx, cause error) {
	for _, x := range ctxs {
		x.stop()
		x.cancel(cause)
	}
}

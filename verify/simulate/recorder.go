// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// recorder wraps the quorum, or the one store, and records which owner waits, and what the store said to it last.
type recorder struct {
	driver.Driver
	p *process

	mu    sync.Mutex
	tries map[string]try // by owner
	waits waiter         // the process's owner in the queue, if any
}

// try is the latest that was granted, or that was refused to one who may enter.
type try struct {
	began   int64
	granted bool
}

// hander is a recorder of a driver.Hander.
type hander struct {
	*recorder
	driver.Hander
}

// Try forwards the request.
func (a *recorder) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	began := a.p.c.w.tick()
	if r.Queue {
		a.mu.Lock()
		a.waits = waiter{a.p, r.Owner, r.Mode == driver.Shared}
		a.mu.Unlock()
	}
	res, err := a.Driver.Try(ctx, r)
	if err == nil && (res.Granted || res.At != 0) {
		a.mu.Lock()
		a.tries[r.Owner] = try{began, res.Granted}
		a.mu.Unlock()
	}
	a.p.c.w.trace.tried(a.p, contend.OfVote(driver.VoteRequest{TryRequest: r}), res, err)
	return res, err
}

// gone records that the process no longer waits.
func (a *recorder) gone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = waiter{}
}

// began returns when the Try began that granted an owner's lease. An owner that entered was handed the key after its
// latest Try was refused: that is when that one began.
func (a *recorder) began(owner string) (tick int64, entered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tries[owner]
	return t.began, !t.granted
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// asks is the quorum, and notes when each Try that was granted began.
type asks struct {
	driver.Driver
	p *process

	mu    sync.Mutex
	tries map[string]int64 // by owner
	waits waiter           // who is in the queue
}

// Try passes the request on.
func (a *asks) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	began, at := a.p.c.w.tick(), time.Now()
	if r.Queue {
		a.mu.Lock()
		a.waits = waiter{a.p, r.Owner, r.Mode == driver.Shared}
		a.mu.Unlock()
	}
	res, err := a.Driver.Try(ctx, r)
	if err == nil && res.Granted {
		a.mu.Lock()
		a.tries[r.Owner] = began
		a.mu.Unlock()
		a.p.c.w.variant.stretch(&res.TTL, r.TTL, time.Since(at))
	}
	a.p.c.w.trace.tried(a.p, contend.OfVote(driver.VoteRequest{TryRequest: r}), res, err)
	return res, err
}

// Renew passes the requests on.
func (a *asks) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	at := time.Now()
	a.Driver.Renew(ctx, rs, func(i int, r driver.Renewal) {
		if r.Err == nil && !rs[i].Queue {
			a.p.c.w.variant.stretch(&r.TTL, rs[i].TTL, time.Since(at))
		}
		done(i, r)
	})
}

// gone notes that nobody of the process is in the queue.
func (a *asks) gone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = waiter{}
}

// began is when the Try began that granted an owner's lease.
func (a *asks) began(owner string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tries[owner]
}

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

// recorder wraps the quorum, and records when each Try that was granted began, and
// which owner waits.
type recorder struct {
	driver.Driver
	p *process

	mu    sync.Mutex
	tries map[string]int64 // by owner
	waits waiter           // the process's owner in the queue, if any
}

// Try forwards the request.
func (a *recorder) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
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
		a.p.c.w.variant.prolong(&res.TTL, r.TTL, time.Since(at))
	}
	a.p.c.w.trace.tried(a.p, contend.OfVote(driver.VoteRequest{TryRequest: r}), res, err)
	return res, err
}

// Renew forwards the requests.
func (a *recorder) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	at := time.Now()
	a.Driver.Renew(ctx, rs, func(i int, r driver.Renewal) {
		if r.Err == nil && !rs[i].Queue {
			a.p.c.w.variant.prolong(&r.TTL, rs[i].TTL, time.Since(at))
		}
		done(i, r)
	})
}

// gone records that the process no longer waits.
func (a *recorder) gone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = waiter{}
}

// began returns when the Try that granted an owner's lease began.
func (a *recorder) began(owner string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tries[owner]
}

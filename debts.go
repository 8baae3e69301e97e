// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
)

// debts are releases that nobody waits for, of calls whose outcome is unknown, and
// that the store could not be told of. However many there are, a store that says
// nothing is asked for one at a time, and each ends when the store has forgotten
// its owner by itself.
type debts struct {
	c *core

	mu      sync.Mutex
	owed    []*debt // to be told first: the first
	running bool    // settle is at work
}

type debt struct {
	req   driver.ReleaseRequest
	until time.Time // the store has nothing of the owner then
	paid  bool
}

const (
	maxDebts     = 10_000 // beyond that the first are forgotten: the TTL ends what they left
	releaseLanes = 32     // how many releases are under way at once
)

// answered says whether err, of a release, is the store's answer to it.
func (c *core) answered(err error) bool {
	return err == nil || errors.Is(err, ErrNotHeld) || !c.worthAsking(err)
}

// releaseOnce tells the store of a release, and waits for its answer for limit at
// most.
func (c *core) releaseOnce(ctx context.Context, limit time.Duration, req driver.ReleaseRequest) error {
	ctx, cancel := context.WithTimeout(ctx, min(limit, releaseLimit/3))
	defer cancel()
	return c.drv.Release(ctx, req)
}

func (d *debts) some() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.owed) > 0
}

// owe notes a release. It must be called within a call that was let in: Close
// waits until all is settled.
func (d *debts) owe(req driver.ReleaseRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.owed) >= maxDebts {
		d.owed = slices.Delete(d.owed, 0, len(d.owed)-maxDebts+1)
	}
	until := time.Now().Add(min(req.TTL, giveBackLimit) + tryLimit)
	d.owed = append(d.owed, &debt{req: req, until: until})
	if !d.running {
		d.running = true
		d.c.calls.EnterLate()
		go d.settle()
	}
}

// settle releases what is owed, until nothing is.
func (d *debts) settle() {
	defer d.c.calls.Leave()
	pause := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	for work := d.look(); len(work) > 0; work = d.look() {
		if d.pay(work[0]) {
			if pause.Reset(); d.payAll(work[1:]) {
				continue
			}
		}
		pause.Wait(d.c.calls.Base.Done())
	}
}

// look drops what is paid or over, and returns the rest, in another order each
// time: one that fails, on a shard that is away, must not keep back the others.
// Without any, or at the end of Close, settle is over.
func (d *debts) look() []*debt {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.owed = slices.DeleteFunc(d.owed, func(w *debt) bool { return w.paid || w.until.Before(now) })
	d.running = len(d.owed) > 0 && d.c.calls.Base.Err() == nil
	if !d.running {
		return nil
	}
	work := slices.Clone(d.owed)
	rand.Shuffle(len(work), func(i, j int) { work[i], work[j] = work[j], work[i] })
	return work
}

// payAll is false when the store fails again.
func (d *debts) payAll(work []*debt) bool {
	var failed atomic.Bool
	next := make(chan *debt, len(work))
	for _, w := range work {
		next <- w
	}
	close(next)
	var lanes sync.WaitGroup
	for range min(releaseLanes, len(work)) {
		lanes.Go(func() {
			for w := range next {
				if !d.pay(w) {
					failed.Store(true)
					return
				}
			}
		})
	}
	lanes.Wait()
	return !failed.Load()
}

// pay delivers one release, and says whether the store answered.
func (d *debts) pay(w *debt) bool {
	ok := d.c.answered(d.c.releaseOnce(d.c.calls.Base, releaseLimit, w.req))
	d.mu.Lock()
	defer d.mu.Unlock()
	w.paid = ok
	return ok
}

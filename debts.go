// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// debts are releases that nobody waits for, of calls whose outcome is unknown, and
// that the store could not be told of. However many there are, a store that says
// nothing is asked for one at a time, and each ends when the store has forgotten
// its owner by itself.
type debts struct {
	c *Client

	mu      sync.Mutex
	owed    []*debt // to be told first: the first
	running bool    // settle is at work
}

type debt struct {
	req   driver.Request
	until time.Time // the store has nothing of the owner then
	paid  bool
}

const (
	maxDebts     = 10_000 // beyond that the first are forgotten: the TTL ends what they left
	releaseLanes = 32     // how many releases are under way at once
)

// giveBack releases what an owner may have in the store. It returns when the
// store has answered, or takes longer than a moment; that goes on in the
// background. silent: the store is known to be away.
func (c *Client) giveBack(req driver.Request, silent bool) {
	if silent || c.debts.some() || !c.answered(c.releaseOnce(c.base, moment, req)) {
		c.debts.owe(req)
	}
}

// answered says whether err, of a release, is the store's answer to it.
func (c *Client) answered(err error) bool {
	return err == nil || errors.Is(err, ErrNotHeld) || !c.worthAsking(err)
}

func (d *debts) some() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.owed) > 0
}

// owe notes a release. It must be called within a call that was let in: Close
// waits until all is settled.
func (d *debts) owe(req driver.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.owed) >= maxDebts {
		d.owed = slices.Delete(d.owed, 0, len(d.owed)-maxDebts+1)
	}
	until := time.Now().Add(min(max(req.TTL, req.Patience), giveBackLimit) + tryLimit)
	d.owed = append(d.owed, &debt{req: req, until: until})
	if !d.running {
		d.running = true
		d.c.enterLate()
		go d.settle()
	}
}

// settle releases what is owed, until nothing is.
func (d *debts) settle() {
	defer d.c.leave()
	const soon = 20 * time.Millisecond
	pause := soon
	for work := d.look(); len(work) > 0; work = d.look() {
		if d.pay(work[0]) {
			if pause = soon; d.payAll(work[1:]) {
				continue
			}
		}
		timer := time.NewTimer(jitter(pause))
		select {
		case <-timer.C:
		case <-d.c.base.Done():
			timer.Stop()
		}
		pause = min(2*pause, time.Second)
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
	d.running = len(d.owed) > 0 && d.c.base.Err() == nil
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
	ok := d.c.answered(d.c.releaseOnce(d.c.base, releaseLimit, w.req))
	d.mu.Lock()
	defer d.mu.Unlock()
	w.paid = ok
	return ok
}

var errUntold = errors.New("the store could not be told")

// release asks until ctx ends or limit is over: errUntold. It needs no live
// context of a caller: c.base ends only when Close is over.
func (c *Client) release(ctx context.Context, limit time.Duration, req driver.Request) error {
	began := time.Now()
	err := c.releaseOnce(ctx, limit, req)
	if err == nil || errors.Is(err, ErrNotHeld) || !c.worthAsking(err) {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(limit))
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, max(time.Second, time.Since(began)/10)) {
		timer := time.NewTimer(jitter(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w, and keeps the key for its TTL of %v: %w", errUntold, req.TTL, err)
		}
		switch err = c.releaseOnce(ctx, limit, req); {
		case err == nil || errors.Is(err, ErrNotHeld):
			return nil // perhaps by an earlier request whose reply was lost
		case !c.worthAsking(err):
			return err
		}
	}
}

func (c *Client) releaseOnce(ctx context.Context, limit time.Duration, req driver.Request) error {
	ctx, cancel := context.WithTimeout(ctx, min(limit, releaseLimit/3))
	defer cancel()
	return c.drv.Release(ctx, req)
}

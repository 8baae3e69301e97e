// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// debt is a release that could not be delivered.
type debt struct {
	b     *bid // which waits for it; nil: none does
	req   driver.WithdrawRequest
	until time.Time // the node forgets the owner by itself
}

// release tells the node that an owner is released; when it cannot be told now
// and owed, as soon as it answers again.
func (n *node) release(b *bid, r driver.WithdrawRequest, owed bool) error {
	err := n.trouble()
	if err == nil {
		err = n.call(max(r.TTL, minTTL), func(ctx context.Context) error { return n.drv.Withdraw(ctx, r) })
	}
	if owed && err != nil && !errors.Is(err, driver.ErrNotHeld) {
		n.owe(b, r)
	}
	return err
}

// owe notes a release for when the node answers again. b may be nil.
func (n *node) owe(b *bid, r driver.WithdrawRequest) {
	r.Settled = false // the request that was lost may come late
	n.mu.Lock()
	now := time.Now()
	var over []debt
	if len(n.owed) >= n.sweepAt {
		over = n.forgive(now)
		n.sweepAt = 2*len(n.owed) + 64
	}
	n.owed[r.ID()] = debt{b, r, now.Add(r.TTL)}
	idle := n.out == nil && !n.settling
	n.settling = n.settling || idle
	n.mu.Unlock()
	n.settled(over)
	if idle { // it answers others
		n.d.spawn(n.settleSoon)
	}
}

// forgive drops the debts that are over: the node forgot those owners by itself.
// n.mu is held.
func (n *node) forgive(now time.Time) (over []debt) {
	for id, w := range n.owed {
		if w.until.Before(now) {
			delete(n.owed, id)
			over = append(over, w)
		}
	}
	return over
}

// settled tells the bids of debts that the node has nothing of them.
func (n *node) settled(debts []debt) {
	for _, w := range debts {
		w.b.confirmed(n, nil)
	}
}

// settleSoon is settle for a node that is in service.
func (n *node) settleSoon() {
	for pause := probePause; ; {
		done := n.serving() && n.settle()
		n.mu.Lock()
		if n.out != nil || done && len(n.owed) == 0 { // out of service: watchOver settles
			n.settling = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		if !done && !pause.Wait(n.d.life.Done()) {
			return
		}
	}
}

// settleLanes is how many debts are settled at once.
const settleLanes = 16

// settle releases what is owed to a node that answers again. It is false when
// the node fails once more.
func (n *node) settle() bool {
	n.mu.Lock()
	over := n.forgive(time.Now())
	work := make(chan debt, len(n.owed))
	for _, w := range n.owed {
		work <- w
	}
	n.mu.Unlock()
	n.settled(over)
	close(work)
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range min(settleLanes, len(work)) {
		wg.Go(func() {
			for w := range work {
				if !n.pay(w) {
					failed.Store(true)
					return
				}
			}
		})
	}
	wg.Wait()
	return !failed.Load()
}

// pay delivers one release that is owed.
func (n *node) pay(w debt) bool {
	ctx, cancel := context.WithTimeout(n.d.life, n.d.probeLimit())
	defer cancel()
	if err := n.drv.Withdraw(ctx, w.req); !w.b.confirmed(n, err) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if id := w.req.ID(); n.owed[id] == w { // else there is another since
		delete(n.owed, id)
	}
	return true
}

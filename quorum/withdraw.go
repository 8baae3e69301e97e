// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/ballot"
)

// withdrawAll sends withdrawals, each again until it is confirmed or its owner asked
// anew. The channels are closed when each was sent once.
func (d *Driver) withdrawAll(o *owner, all []ballot.Withdrawal) []<-chan struct{} {
	sent := make([]<-chan struct{}, 0, len(all))
	for _, w := range all {
		sent = append(sent, d.nodes[w.Node].withdraw(o, w))
	}
	return sent
}

// withdraw sends one withdrawal. The channel is closed when the node answered, or was given up.
func (n *node) withdraw(o *owner, w ballot.Withdrawal) <-chan struct{} {
	once := make(chan struct{})
	ended := func(err error) {
		ok := o.withdrawn(n, w.UpTo, err)
		close(once)
		switch {
		case ok:
		case w.Over:
			n.cleanUpLater(o, w.WithdrawRequest)
		default:
			n.d.spawn(func() { n.withdrawAgain(o, w) })
		}
	}
	if err := n.trouble(); err != nil {
		ended(err)
		return once
	}
	f := n.fanout(max(w.TTL, minTTL), func(*node) { ended(errSilent) })
	n.startWithdraw(f.ctx, w.WithdrawRequest, func(err error) {
		if f.ended(n, err) { // else it was given up
			ended(err)
		}
	})
	return once
}

// withdrawAgain sends a withdrawal that was not confirmed, for as long as it stands.
func (n *node) withdrawAgain(o *owner, w ballot.Withdrawal) {
	stands := func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.Stands(w.Tries, n.d.now())
	}
	for pause, ok := probePause, false; !ok && pause.Wait(n.d.life.Done()) && stands(); {
		err := n.trouble()
		if err == nil {
			err = n.call(max(w.TTL, minTTL), func(ctx context.Context) error { return n.drv.Withdraw(ctx, w.WithdrawRequest) })
		}
		ok = o.withdrawn(n, w.UpTo, err)
	}
}

// withdrawn notes the answer to a Withdraw up to a fence, and says whether there was one. o may be nil.
func (o *owner) withdrawn(n *node, upTo uint64, err error) bool {
	if err != nil && !errors.Is(err, driver.ErrNotHeld) {
		return false
	}
	if o != nil {
		o.mu.Lock()
		o.Withdrawn(n.index, upTo)
		o.mu.Unlock()
		n.d.owners.dropIfOver(o)
	}
	return true
}

// comeBack is how long an owner that was refused may take to ask again, before
// nodes that have not answered are told that it is gone.
const comeBack = 4 * time.Second

// mayVanish ends an owner that was refused without a place, and neither asks again nor
// listens. An owner that waits asks again at once.
func (d *Driver) mayVanish(o *owner) {
	o.mu.Lock()
	blank, tries := o.Blank(), o.Tries()
	o.mu.Unlock()
	if blank {
		d.owners.drop(o.id)
		return
	}
	d.spawn(func() {
		for d.sleep(comeBack) {
			if !d.listens(o) {
				o.mu.Lock()
				back := o.Vanished(tries)
				o.mu.Unlock()
				d.withdrawAll(o, back)
				d.owners.dropIfOver(o)
				return
			}
		}
	})
}

// listens says that a watch of the owner is open.
func (d *Driver) listens(o *owner) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.waiters[o.id.Key], func(w *watch) bool { return w.claim.ID() == o.id })
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/ballot"
)

// Release gives up what an owner has on every node, also on those that failed;
// see [driver.Driver]. It returns once a majority and the queue node have done it;
// nodes that cannot be told now are told when they answer again.
func (d *Driver) Release(ctx context.Context, asked driver.ReleaseRequest) error {
	if err := d.check(ctx, asked.Claim); err != nil {
		return err
	}
	o, queue := d.owners.get(asked.Claim), d.queueIndex()
	l := &releasing{d: d, o: o, came: make(chan struct{}, 1)}
	if o == nil {
		l.count = ballot.Stranger(len(d.nodes), asked, queue)
	} else {
		o.mu.Lock()
		l.count = o.Release(asked, queue)
		o.mu.Unlock()
	}
	l.send(max(asked.TTL, minTTL))
	late := time.NewTimer(d.timeout(asked.TTL))
	defer late.Stop()
	for !l.decided() {
		select {
		case <-l.came:
		case <-late.C:
			l.mu.Lock()
			l.count.Overdue()
			l.mu.Unlock()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if o != nil {
		d.owners.dropIfOver(o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.count.Outcome() {
	case ballot.Unknown:
		return d.tooFew(l.errs)
	case ballot.NotHolder:
		return driver.ErrNotHeld
	}
	return nil
}

// releasing is a Release under way.
type releasing struct {
	d    *Driver
	o    *owner        // nil: another process's
	came chan struct{} // something did

	mu    sync.Mutex
	count ballot.Release
	errs  [maxNodes]error
}

// send tells the nodes.
func (l *releasing) send(ttl time.Duration) {
	d := l.d
	var asked ballot.Set
	for _, n := range d.nodes {
		switch {
		case l.count.Late(n.index):
			l.errs[n.index] = errSilent
		case !l.count.Tells(n.index):
		default:
			if l.errs[n.index] = n.trouble(); l.errs[n.index] != nil {
				n.cleanUpLater(l.o, l.count.Request(n.index))
			} else {
				asked.Add(n.index)
			}
		}
	}
	l.count.Sent(asked)
	f := d.fanout(d.life, asked, ttl, d.most(ttl), func(n *node) { l.answer(n, errSilent) })
	for _, n := range d.nodes {
		if !asked.Has(n.index) {
			continue
		}
		req := l.count.Request(n.index)
		n.startWithdraw(f.ctx, req, func(err error) {
			if !l.o.withdrawn(n, req.UpTo, err) {
				n.cleanUpLater(l.o, req)
			}
			f.ended(n, err)
			l.answer(n, err)
		})
	}
}

// answer counts the answer of a node, once.
func (l *releasing) answer(n *node, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.count.Waits(n.index) {
		return
	}
	kind := kindOf(err)
	if l.count.Answer(n.index, kind); kind != ballot.NotHolder {
		l.errs[n.index] = err
	}
	if !l.count.Decided() {
		return
	}
	select {
	case l.came <- struct{}{}:
	default:
	}
}

func (l *releasing) decided() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count.Decided()
}

// startWithdraw begins a Withdraw at the node.
func (n *node) startWithdraw(ctx context.Context, r voting.WithdrawRequest, done func(error)) {
	if n.async != nil {
		n.async.StartWithdraw(ctx, r, done)
	} else if !n.d.spawn(func() { done(n.drv.Withdraw(ctx, r)) }) {
		done(context.Canceled)
	}
}

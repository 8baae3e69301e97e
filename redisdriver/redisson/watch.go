// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"slices"

	"github.com/hasplock/hasp/driver"
)

// channel is where messages for an owner come: of a fair lock each has its own.
func (d *Driver) channel(c driver.Claim) string {
	channel := d.names(c.Key).channel
	if d.kind == Fair {
		channel += ":" + fieldOf(c.Owner)
	}
	return channel
}

// Watch returns the channel of hints for c.Owner; see [driver.Driver]. It is nil if the
// server does not allow this client to subscribe.
//
// The first Watch opens one connection for subscriptions beside the client's
// pool; it stays until Close.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if err := d.valid(c.Key, c.Check()); err != nil {
		return nil, err
	}
	p, err := d.posts.Get(d.slotOf(c.Key))
	if p == nil {
		return nil, err
	}
	defer p.Use(-1)
	if ok, err := p.Await(ctx); !ok {
		return nil, err
	}
	channel := d.channel(c)
	if ok, err := p.Join(ctx, channel); !ok {
		return nil, err
	}
	w := &watcher{claim: c}
	p.watch(ctx, channel, w)
	return w.hint, nil
}

// watcher returns the post and the watcher of an owner, and how many have watched for longer; nil if it does not watch.
func (d *Driver) watcher(c driver.Claim) (p *post, w *watcher, rank int) {
	if p = d.posts.Find(d.slotOf(c.Key)); p == nil {
		return nil, nil, 0
	}
	channel := d.channel(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if rank = slices.IndexFunc(p.waiting[channel], func(w *watcher) bool { return w.claim.ID() == c.ID() }); rank < 0 {
		return p, nil, 0
	}
	return p, p.waiting[channel][rank], rank
}

// rank returns how many have watched for longer than c's owner; watches is false if no messages come for it.
func (d *Driver) rank(c driver.Claim) (rank int, watches bool) {
	p, w, rank := d.watcher(c)
	return rank, w != nil && p.Listens(d.channel(c))
}

// asked notes that c's owner asks the store, and returns what to call when it was answered.
func (d *Driver) asked(c driver.Claim) (answered func()) {
	p, w, _ := d.watcher(c)
	if w == nil {
		return func() {}
	}
	return p.asks(w)
}

// wakeLock gives a hint to the waiter that has waited for longest: as Java, to one in each process. Readers share the lock,
// and so the hint: it is given to all readers there are.
func wakeLock(_, payload string, all []*watcher) {
	all[0].signal()
	if payload != "1" && all[0].claim.Mode != driver.Shared {
		return
	}
	for _, w := range all[1:] {
		if w.claim.Mode == driver.Shared {
			w.signal()
		}
	}
}

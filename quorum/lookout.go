// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
)

// lookPause is between two looks at the queue of a key that has a waiter here.
// A waiter that only waits for hints would not find out that the queue node hangs, or has
// lost the place, or that a hint was lost; with a node time-out, and a moment to ask
// at the others, the key is free for less than a second.
const lookPause = 300 * time.Millisecond

// arrives starts a goroutine that looks at the queue of w's key for as long as w waits. For
// each key one place is enough, the longest waiter's: the others come after it.
func (d *Driver) arrives(w *watch) {
	key := w.claim.Key
	d.mu.Lock()
	_, watched := d.waiters[key]
	d.waiters[key] = append(d.waiters[key], w)
	d.mu.Unlock()
	if !watched {
		d.spawn(func() { d.lookout(key) })
	}
}

func (d *Driver) departs(w *watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if all, ok := d.waiters[w.claim.Key]; ok {
		d.waiters[w.claim.Key] = slices.DeleteFunc(all, func(o *watch) bool { return o == w })
	}
}

// lookout looks at the queue of a key until it has no waiter here.
func (d *Driver) lookout(key string) {
	for i := rand.N(len(d.nodes)); d.sleep(lookPause); i++ {
		d.mu.Lock()
		all := d.waiters[key]
		if len(all) == 0 {
			delete(d.waiters, key)
			d.mu.Unlock()
			return
		}
		w := all[0]
		d.mu.Unlock()
		w.look()
		w.glance(i)
	}
}

// look asks the queue node for the owner's place: an owner that has lost it, or that no
// hint will tell when to ask, is told.
func (w *watch) look() {
	o := w.d.owners.get(w.claim)
	if o == nil || !o.inQueue() {
		return // it has not asked, or knows itself when to
	}
	o.mu.Lock()
	asked := o.Of()
	o.mu.Unlock()
	r := driver.RenewRequest{Claim: w.claim, TTL: asked.TTL, Queue: true, Patience: asked.Patience}
	ctx, cancel := context.WithTimeout(w.ctx, 2*lookPause) // a node that only answers others
	defer cancel()
	w.d.keepPlaces(ctx, []driver.RenewRequest{r}, []int{0}, func(_ int, res driver.Renewal) {
		switch {
		case errors.Is(res.Err, driver.ErrNotHeld):
			w.tell()
		case res.RetryIn > 0 && res.RetryIn <= lookPause:
			time.AfterFunc(res.RetryIn, w.tell)
		}
	})
}

// glance asks some of the other nodes for the holder. The queue node may have missed a release, or that its holder
// shares the key now, or left while others share it; and where the queue was before, a place that stayed behind may
// have been handed the key, with no waiter listening. When
// a majority knows better than the queue node, one of half the nodes does.
func (w *watch) glance(turn int) {
	queue := w.d.queue.Load()
	others := make([]*node, 0, maxNodes)
	for _, n := range w.d.nodes {
		if n != queue && n.serving() {
			others = append(others, n)
		}
	}
	o := w.d.owners.get(w.claim)
	if o == nil || !o.inQueue() {
		return
	}
	half := len(w.d.nodes) / 2
	for i := range min(half, len(others)) {
		if w.learns(queue, others[(turn*half+i)%len(others)]) {
			w.tell()
			return
		}
	}
}

// learns asks a node for the holder, and reports whether w's owner should ask all nodes now.
func (w *watch) learns(queue, n *node) bool {
	there, err := w.inspect(n)
	if err != nil {
		return false
	}
	w.d.tellHolders(w.claim.Key, there.Holders)
	if !there.Held {
		return true
	}
	if queue == nil || w.claim.Mode != driver.Shared || there.Holder.Mode != driver.Shared {
		return false
	}
	here, err := w.inspect(queue) // its holder shares the key there, or has left
	return err == nil && here.Held && here.Holder.Mode == driver.Exclusive
}

// tellHolders tells the waiters here that have the key at a node to ask the others.
func (d *Driver) tellHolders(key string, there []driver.Holding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.waiters[key] {
		if slices.ContainsFunc(there, func(l driver.Holding) bool { return l.Holder.Owner == w.claim.Owner }) {
			w.tell()
		}
	}
}

func (w *watch) inspect(n *node) (info driver.Info, err error) {
	err = n.call(placeTime, func(ctx context.Context) (err error) {
		info, err = n.drv.Inspect(ctx, w.claim.Key)
		return err
	})
	return info, err
}

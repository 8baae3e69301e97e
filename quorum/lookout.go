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

// lookPause is between two looks at the queue of a key that somebody here waits for.
// Whoever only waits to be told would not find out that the queue node hangs, or has
// lost the place, or that a hint was lost; with a node time-out, and a moment to ask
// at the others, the key is not free for a second.
const lookPause = 300 * time.Millisecond

// arrives has somebody look at the queue of w's key for as long as w waits. For each
// key one place is enough, that of who waits longest: who is behind it comes after it.
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

// lookout looks at the queue of a key until nobody here waits for it.
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

// look asks the queue node for the owner's place: one that is gone, or has nobody who
// will tell it when to ask, is told.
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

// glance asks one of the other nodes who has the key. The queue node may be the only one
// that does not know of a release, or that its holder shares the key now.
func (w *watch) glance(turn int) {
	queue := w.d.queue.Load()
	others := make([]*node, 0, maxNodes)
	for _, n := range w.d.nodes {
		if n != queue && n.serving() {
			others = append(others, n)
		}
	}
	o := w.d.owners.get(w.claim)
	if o == nil || !o.inQueue() || len(others) == 0 {
		return
	}
	there, err := w.inspect(others[turn%len(others)])
	switch {
	case err != nil:
	case !there.Held:
		w.tell()
	case queue != nil && w.claim.Mode == driver.Shared && there.Holder.Mode == driver.Shared:
		here, err := w.inspect(queue)
		shares := func(l driver.Lease) bool { return l.Holder.Owner == here.Holder.Owner }
		if err == nil && here.Held && here.Holder.Mode == driver.Exclusive && slices.ContainsFunc(there.Holders, shares) {
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

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/verify/engines"
)

const (
	// wake is how long a key may be available to a waiter that gets hints by messages:
	// far longer than a message takes, and shorter than the time to the waiter's next
	// Try with a TTL of 10 s or more.
	wake = 2 * time.Second
	// polls is the same where all waiters poll one file, and delay each other.
	polls = 15 * time.Second
	// claim is how long a key is offered to a waiter that was killed or stopped.
	claim = 500 * time.Millisecond
)

// watcher sees what the book does not have: which processes died, and for how long this one did not get to run.
type watcher struct {
	o                  *Options
	ctx                context.Context
	seen               map[*player.Member]uint64 // the fence of the last leader that a process saw
	stalls             history.Stalls            // of this process, whenever another reported something
	first              time.Time                 // when a hold may first have ended without a release; zero: not yet
	holding, abandoned int                       // see Outcome
}

// hear notes what a client says; see player.Trial.
func (w *watcher) hear(b *player.Book, m *player.Member, e *player.Event) {
	if e == nil {
		w.left(b, m)
		return
	}
	w.stalls = append(w.stalls, history.Stall{At: b.Wall(player.Now()), Lost: e.Stalled})
	switch at := b.Wall(e.At); e.What {
	case player.Failed:
		w.trouble(at) // its leases may expire
	case player.Granted:
		if e.Abandoned {
			w.abandoned++
		}
	case player.Ended:
		if e.Lost {
			w.trouble(at)
		}
	case player.Released:
		for _, h := range m.Giving {
			if at.After(h.Deadline) { // the store may take it for too late
				w.trouble(h.Deadline)
			}
		}
	case player.Saw:
		if top := w.seen[m]; e.Fence < top {
			b.Broken("%v observed the leader with fence %d after the one with %d", m, e.Fence, top)
		}
		w.seen[m] = e.Fence
	}
}

// hit notes that a client is about to be killed or stopped.
func (w *watcher) hit(b *player.Book, m *player.Member) {
	w.trouble(b.Wall(player.Now()))
	if a := m.Latest; a != nil && a.Waits() {
		a.Away = true
	}
}

// trouble records that a hold may have ended without a release.
func (w *watcher) trouble(at time.Time) {
	if w.first.IsZero() || at.Before(w.first) {
		w.first = at
	}
}

// left records that a process has ended. Where it was killed, its leases and its place in the queue last for a TTL at most.
func (w *watcher) left(b *player.Book, m *player.Member) {
	at := player.Now().Add(w.o.TTL)
	until := b.Wall(at)
	for _, h := range slices.Concat(m.Open, m.Giving) {
		h.Kept = until
	}
	for _, h := range m.Open {
		h.Cut = true
	}
	if len(m.Open) > 0 {
		w.holding++
	}
	if a := m.Latest; a != nil && a.Waits() {
		a.Away, a.Failed = true, at
	}
	if !m.Killed && m.Errors() != "" {
		b.Broken("%v said at its end: %s", m, m.Last())
	}
}

// judge returns what is wrong.
func (w *watcher) judge(b *player.Book) []string {
	if len(b.Found) == 0 {
		w.acquireAll(b)
	}
	holds := b.History()
	return slices.Concat(history.Found(w.idle(b)), history.Unreported(holds), tooSoon(holds, w.first))
}

// acquireAll acquires every key and every slot, once the processes have ended: the keys of
// killed processes must be free after their TTL, all of them.
func (w *watcher) acquireAll(b *player.Book) {
	ctx, cancel := context.WithTimeout(w.ctx, w.o.Patience)
	defer cancel()
	c, err := open(w.o.job(), nil)
	if err != nil {
		b.Broken("%v", err)
		return
	}
	defer func() {
		if err := c.Close(); err != nil {
			b.Broken("the end: %v", err)
		}
	}()
	orders := []player.Order{}
	for _, key := range w.o.Kind.keys() {
		orders = append(orders, player.Order{Wants: []player.Want{{Key: key}}})
	}
	if w.o.Kind == Semaphore {
		orders[0].Slots, orders[0].Wants[0].Shared = w.o.Slots, true
		orders = slices.Repeat(orders, w.o.Slots)
	}
	me := &player.Member{Process: &player.Process{}} // the others' numbers begin with 1
	var all []*player.Holding
	for _, o := range orders {
		me.Order = o
		b.Add(me, &player.Event{What: player.Asked, At: player.Now()})
		h, err := player.Acquire(ctx, c, &o, w.o.TTL)
		if err != nil {
			b.Broken("after all processes have ended: %v", err)
			return
		}
		e := player.Of(player.Granted, h.Leases[0])
		b.Add(me, &e)
		all = append(all, h)
	}
	for _, h := range all {
		e := player.Of(player.Ended, h.Leases[0])
		b.Add(me, &e)
		if err := h.Release(); err != nil {
			b.Broken("the last release of %q: %v", e.Key, err)
		}
	}
	b.Add(me, &player.Event{What: player.Released, At: player.Now()})
	for _, key := range w.o.Kind.keys() {
		if err := free(ctx, c, key); err != nil {
			b.Broken("after everything was released: %v", err)
		}
	}
}

// free waits until a key is free: it may still be offered to a waiter that was
// killed.
func free(ctx context.Context, c *engines.Client, key string) error {
	for {
		info, err := c.Operator().Inspect(ctx, key)
		switch {
		case err != nil:
			return err
		case !info.Held:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%q is held: %+v", key, info)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tooSoon finds deaths that were reported before there can have been any.
func tooSoon(holds []history.Hold, first time.Time) (found []string) {
	for _, h := range holds {
		if h.Abandoned && (first.IsZero() || h.From.Before(first)) {
			found = append(found, fmt.Sprintf("%s learned that a previous holder of %q did not release it, and all had", h.Owner, h.Key))
		}
	}
	return found
}

// idle returns an error if a key was available to a waiter for longer than documented.
func (w *watcher) idle(b *player.Book) error {
	holds := b.History()
	for i, h := range b.Holds {
		if holds[i].To = h.Kept; h.Kept.IsZero() {
			holds[i].To = b.Wall(player.Now())
		}
	}
	var waits []history.Wait
	for _, a := range b.Attempts {
		if w.o.Kind != LockAll && !a.Waits() { // what it holds while it waits for its other keys is not in the history
			to := cmp.Or(a.Granted, a.Failed)
			waits = append(waits, history.Wait{Key: a.Key, Owner: a.By.String(), Shared: a.Shared, Limit: a.Limit,
				Asked: b.Wall(a.Asked), From: b.Wall(cmp.Or(a.Queued, to)), To: b.Wall(to), Away: a.Away}) // it had no place, as far as it said
		}
	}
	return history.CheckIdle(holds, waits, func(_ string, from, to time.Time) time.Duration {
		lost := w.stalls.Between(from, to)
		most := lost + wake
		if w.o.Store.Kind == engines.SQLite {
			most = lost + polls
		}
		for _, wait := range waits {
			if wait.Away && wait.Asked.Before(to) && wait.To.Add(claim).After(from) {
				most += max(claim, min(w.o.TTL, 10*time.Second)) // SQLite waits for the patience of a place
			}
		}
		return most
	})
}

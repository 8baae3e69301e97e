// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
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

// last acquires every key and every slot, once the processes have ended: the keys of
// killed processes must be free after their TTL, all of them.
func (r *run) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	c, err := open(r.o.job(), nil)
	if err != nil {
		r.Broken("%v", err)
		return
	}
	defer func() {
		if err := c.Close(); err != nil {
			r.Broken("the end: %v", err)
		}
	}()
	orders := []player.Order{}
	for _, key := range r.o.Kind.keys() {
		orders = append(orders, player.Order{Wants: []player.Want{{Key: key}}})
	}
	if r.o.Kind == Semaphore {
		orders[0].Slots, orders[0].Wants[0].Shared = r.o.Slots, true
		orders = slices.Repeat(orders, r.o.Slots)
	}
	me := &player.Member{Process: &player.Process{ID: r.Started + 1}}
	var all []*player.Holding
	for _, o := range orders {
		me.Order = o
		r.Add(me, &player.Event{What: player.Asked, At: player.Now()})
		h, err := player.Acquire(ctx, c, &o, r.o.TTL)
		if err != nil {
			r.Broken("after all processes have ended: %v", err)
			return
		}
		e := player.Of(player.Granted, h.Leases[0])
		r.Add(me, &e)
		all = append(all, h)
	}
	for _, h := range all {
		e := player.Of(player.Ended, h.Leases[0])
		r.Add(me, &e)
		if err := h.Release(); err != nil {
			r.Broken("the last release of %q: %v", e.Key, err)
		}
	}
	r.Add(me, &player.Event{What: player.Released, At: player.Now()})
	for _, key := range r.o.Kind.keys() {
		if err := free(ctx, c, key); err != nil {
			r.Broken("after everything was released: %v", err)
		}
	}
}

// free waits until a key is free: it may still be offered to a waiter that was
// killed.
func free(ctx context.Context, c *client, key string) error {
	for {
		info, err := c.Inspect(ctx, key)
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

// judge asks the oracles.
func (r *run) judge() {
	holds := r.History()
	r.Found = history.Few(slices.Concat(r.Found, history.Judge(holds), history.Found(r.idle()), history.Unreported(holds), tooSoon(holds, r.first)), 10)
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

// requested records that a process is about to ask. The waits of LockAll are not
// judged, because what it holds while it waits for its other keys is not in the history.
func (r *run) requested(m *player.Member, p *process) {
	if r.o.Kind == LockAll {
		return
	}
	p.waits = &history.Wait{Key: m.Order.Wants[0].Key, Owner: m.String(), Shared: m.Order.Wants[0].Shared, Limit: m.Order.Slots,
		Asked: r.Wall(m.Asked), Away: m.Paused}
}

// queued records that a process has a place in the queue.
func (r *run) queued(p *process, at player.Mono) {
	if p.waits != nil {
		p.waits.From = r.Wall(at)
	}
}

// waited records that a process no longer waits.
func (r *run) waited(p *process, at player.Mono) {
	if p.waits == nil {
		return
	}
	if p.waits.To = r.Wall(at); p.waits.From.IsZero() {
		p.waits.From = p.waits.To // it had no place, as far as it said
	}
	r.waits = append(r.waits, *p.waits)
	p.waits = nil
}

// gone records that a process was killed: its leases and its place in the queue last
// for a TTL at most.
func (r *run) gone(m *player.Member) {
	until := player.Now().Add(r.o.TTL)
	for _, h := range slices.Concat(m.Open, m.Giving) {
		h.Kept = r.Wall(until)
	}
	if p := r.process(m); p.waits != nil {
		p.waits.Away = true
		r.waited(p, until)
	}
}

// idle returns an error if a key was available to a waiter for longer than documented.
func (r *run) idle() error {
	holds := r.History()
	for i, h := range r.Holds {
		if holds[i].To = h.Kept; h.Kept.IsZero() {
			holds[i].To = r.Wall(player.Now())
		}
	}
	return history.CheckIdle(holds, r.waits, func(_ string, from, to time.Time) time.Duration {
		lost := r.lostBetween(from, to)
		most := lost + wake
		if r.o.Store.Kind == engines.SQLite {
			most = lost + polls
		}
		for _, w := range r.waits {
			if w.Away && w.Asked.Before(to) && w.To.Add(claim).After(from) {
				most += max(claim, min(r.o.TTL, 10*time.Second)) // SQLite waits for the patience of a place
			}
		}
		return most
	})
}

// lostBetween returns for how long this process did not get to run between the reports
// around two instants.
func (r *run) lostBetween(from, to time.Time) time.Duration {
	first, last := time.Duration(0), r.lost()
	for _, s := range r.stalls {
		if !s.at.After(from) {
			first = s.lost
		}
		if s.at.After(to) {
			last = s.lost
			break
		}
	}
	return last - first
}

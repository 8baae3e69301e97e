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

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
)

// last acquires every key and every slot, once the processes have ended: the keys of
// killed processes must be free after their TTL, all of them.
func (r *run) last(ctx context.Context) {
	if len(r.Found) > 0 {
		return
	}
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
	me, o := &player.Member{Process: &player.Process{ID: r.Started + 1}}, &hasp.LockOptions{TTL: r.o.TTL}
	me.Order = r.draw(true)
	var all []*hasp.Lease
	take := func(lock func(context.Context) (*hasp.Lease, error)) bool {
		r.Add(me, &player.Event{What: player.Asked, At: player.Now()})
		l, err := lock(ctx)
		if err != nil {
			r.Broken("after all processes have ended: %v", err)
			return false
		}
		e := player.Of(player.Granted, l)
		r.Add(me, &e)
		all = append(all, l)
		return true
	}
	if r.o.Kind == Semaphore {
		s := c.Semaphore(Semaphore.key(), r.o.Slots, o)
		for range r.o.Slots {
			if !take(s.Lock) {
				return
			}
		}
	} else {
		for _, key := range r.o.Kind.keys() {
			if !take(c.Mutex(key, o).Lock) {
				return
			}
		}
	}
	for _, l := range all {
		e := player.Of(player.Ended, l)
		r.Add(me, &e)
		if err := l.Release(); err != nil {
			r.Broken("the last release of %q: %v", l.Key(), err)
		}
	}
	r.Add(me, &player.Event{What: player.Released, At: player.Now()})
	for _, key := range r.o.Kind.keys() {
		if err := free(ctx, c, key); err != nil {
			r.Broken("after everything was released: %v", err)
		}
	}
}

// free waits until nobody has a key: it may still be offered to a waiter that was
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
func (r *run) judge(took time.Duration) *Outcome {
	r.Took = took
	holds := r.History()
	r.Found = history.Few(slices.Concat(r.Found, history.Judge(holds), history.Found(r.idle()), history.Unreported(holds), tooSoon(holds, r.first)), 10)
	r.Most = most(holds)
	return &r.Outcome
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

// most returns the largest number of holders of one key at one instant.
func most(holds []history.Hold) (n int) {
	type edge struct {
		at time.Time
		by int
	}
	byKey := map[string][]edge{}
	for _, h := range holds {
		if h.From.Before(h.To) {
			byKey[h.Key] = append(byKey[h.Key], edge{h.From, 1}, edge{h.To, -1})
		}
	}
	for _, edges := range byKey {
		slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
		here := 0
		for _, e := range edges {
			here += e.by
			n = max(n, here)
		}
	}
	return n
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/verify/internal/crew"
)

// last takes all that there is, once the processes have ended: every key, every
// slot. What those held that were killed is free after their TTL, so that nothing
// is held by half.
func (r *run) last(ctx context.Context) {
	if len(r.Found) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	c, err := open(r.o.Store, r.o.broken, nil)
	if err != nil {
		r.broken("%v", err)
		return
	}
	defer func() {
		if err := c.Close(); err != nil {
			r.broken("the end: %v", err)
		}
	}()
	me, o := &process{Member: &crew.Member{ID: r.hired + 1}}, &hasp.LockOptions{TTL: r.o.TTL}
	var all []*hasp.Lease
	take := func(lock func(context.Context) (*hasp.Lease, error)) bool {
		me.asked = crew.Now()
		l, err := lock(ctx)
		if err != nil {
			r.broken("after all processes have ended: %v", err)
			return false
		}
		d := look(l)
		if r.o.Kind == Semaphore {
			d.Limit = r.o.Slots
		}
		r.grant(me, &event{At: crew.Now(), Leases: []lease{d}, Abandoned: d.Abandoned})
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
	for i, l := range all {
		h := r.holds[len(r.holds)-len(all)+i]
		h.To, h.kept = crew.Now().Time(), crew.Now().Time()
		if err := l.Release(); err != nil {
			r.broken("the last release of %q: %v", l.Key(), err)
		}
	}
	for _, key := range r.o.Kind.keys() {
		if err := free(ctx, c, key); err != nil {
			r.broken("after everything was released: %v", err)
		}
	}
}

// free waits until nobody has a key: one that waited for it and was killed is
// still offered it for a while.
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
	holds := make([]history.Hold, len(r.holds))
	for i, h := range r.holds {
		holds[i] = h.Hold
	}
	for _, err := range []error{history.Check(holds), history.CheckFences(holds), r.idle()} {
		if err != nil {
			r.Found = append(r.Found, strings.Split(err.Error(), "\n")...)
		}
	}
	r.Found = append(r.Found, untold(r.holds, r.first)...)
	for _, p := range r.all {
		r.Found = append(r.Found, back(p)...)
	}
	if len(r.Found) > 10 {
		r.Found = append(r.Found[:10], fmt.Sprintf("and %d more", len(r.Found)-10))
	}
	r.Most = most(holds)
	return &r.Outcome
}

// untold finds holders that were killed, of whose death nobody was told: it is
// the next one of the key to write, or one of those of a semaphore to come once
// the lease was over. And deaths that were told before there can have been any.
func untold(holds []*holding, first time.Time) (found []string) {
	byKey := map[string][]*holding{}
	for _, h := range holds {
		byKey[h.Key] = append(byKey[h.Key], h)
		if h.abandoned && (first.IsZero() || h.From.Before(first)) {
			found = append(found, fmt.Sprintf("%s was told that a holder of %q before it did not finish, and all had", h.Owner, h.Key))
		}
	}
	for key, hs := range byKey {
		slices.SortStableFunc(hs, func(a, b *holding) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Granted, b.Granted)) })
		for i, h := range hs {
			if h.cut && (h.Limit > 0 || !h.Shared && h.Down.IsZero()) && !told(h, hs[i+1:]) {
				found = append(found, fmt.Sprintf("%s was killed while it held %q until %v, and nobody after it was told", h.Owner, key, h.To))
			}
		}
	}
	return found
}

// told says whether the death of a holder was told to those after it: to the
// first that writes, and all that read before it.
func told(dead *holding, after []*holding) bool {
	for _, h := range after {
		if h.Limit > 0 {
			if h.abandoned && !h.From.Before(dead.To) {
				return true
			}
			continue
		}
		if !h.abandoned || !h.Shared {
			return h.abandoned
		}
	}
	return dead.Limit == 0 // nobody came but those who read
}

// back finds leaders that a process saw after a later one.
func back(p *process) (found []string) {
	var top lease
	for _, l := range p.seen {
		if l.Fence < top.Fence {
			found = append(found, fmt.Sprintf("%v saw the leader with fence %d after the one with %d", p, l.Fence, top.Fence))
		}
		top = l
	}
	return found
}

// most is how many held one key at one instant.
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

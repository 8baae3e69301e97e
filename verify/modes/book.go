// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/verify/internal/child"
)

// receive records what a process reported.
func (r *run) receive(rep report) {
	p, e := rep.of, rep.e
	r.stalls = append(r.stalls, stalled{child.Now().Time(), r.lost()})
	if e == nil {
		r.left(p)
		return
	}
	switch e.What {
	case asked:
		p.keys, p.asked = e.Keys, e.At
		r.requested(p, e)
	case failed:
		r.waited(p, e.At)
		r.trouble(e.At.Time()) // its leases may expire
		if e.Cancelled {
			r.Cancelled++
		} else {
			r.Failed++
			r.Trouble = e.Err
		}
	case granted:
		r.grant(p, e)
	case renewed:
		for _, h := range p.open {
			if h.Owner == owner(p.ID, e.Leases[0].Owner) && !h.over {
				h.To = latest(h.To, e.Leases[0].Deadline)
			}
		}
	case lowered:
		for _, h := range p.open {
			h.Down = e.At.Time()
		}
	case ended:
		r.end(p, e)
	case released:
		for _, h := range p.giving {
			if h.kept = e.At.Time(); h.kept.After(h.ends) { // the store may take it for too late
				r.trouble(h.ends)
			}
		}
		p.giving = nil
	case saw:
		p.seen = append(p.seen, e.Leases[0])
	}
}

// trouble records that a hold may have ended without a release.
func (r *run) trouble(at time.Time) {
	if r.first.IsZero() || at.Before(r.first) {
		r.first = at
	}
}

// owner returns the name of a hold in messages.
func owner(id int, owner string) string { return fmt.Sprintf("process %d (%s)", id, owner) }

func latest(t time.Time, m child.Mono) time.Time {
	if u := m.Time(); u.After(t) {
		return u
	}
	return t
}

func (r *run) grant(p *process, e *event) {
	r.waited(p, e.At)
	p.turns++
	r.Granted++
	r.since++
	if e.Abandoned {
		r.Abandoned++
	}
	p.open = nil
	for _, l := range e.Leases {
		h := &holding{abandoned: l.Abandoned, Hold: history.Hold{
			Key: l.Key, Owner: owner(p.ID, l.Owner), Fence: l.Fence, Shared: l.Shared, Limit: l.Limit, Slot: l.Slot,
			From: e.At.Time(), To: l.Deadline.Time(), Asked: int64(p.asked), Granted: int64(e.At)}}
		p.open = append(p.open, h)
		r.holds = append(r.holds, h)
	}
}

func (r *run) end(p *process, e *event) {
	if e.Lost {
		r.trouble(e.At.Time())
		r.Lost++
	}
	for _, l := range e.Leases {
		i := slices.IndexFunc(p.open, func(h *holding) bool { return h.Owner == owner(p.ID, l.Owner) })
		if i < 0 { // an inconsistent report
			r.broken("%v releases %q, which it does not hold", p, l.Key)
			continue
		}
		h := p.open[i]
		h.over = true
		h.To = e.At.Time()
		if h.ends = l.Deadline.Time(); h.ends.Before(h.To) {
			h.To = h.ends
		}
	}
	p.giving, p.open = p.open, nil
}

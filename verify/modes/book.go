// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/verify/internal/crew"
)

// hear takes in what a process said.
func (r *run) hear(rep report) {
	p, e := rep.of, rep.e
	if e == nil {
		r.left(p)
		return
	}
	switch e.What {
	case asked:
		p.keys, p.asked = e.Keys, e.At
	case failed:
		r.trouble(e.At) // what it had may run out
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
	case saw:
		p.seen = append(p.seen, e.Leases[0])
	}
}

// trouble records that a hold may have ended without its client's doing.
func (r *run) trouble(at crew.Mono) {
	if r.first.IsZero() {
		r.first = at.Time()
	}
}

// owner names a hold for people.
func owner(id int, owner string) string { return fmt.Sprintf("process %d (%s)", id, owner) }

func latest(t time.Time, m crew.Mono) time.Time {
	if u := m.Time(); u.After(t) {
		return u
	}
	return t
}

func (r *run) grant(p *process, e *event) {
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
		r.trouble(e.At)
		r.Lost++
	}
	for _, l := range e.Leases {
		i := slices.IndexFunc(p.open, func(h *holding) bool { return h.Owner == owner(p.ID, l.Owner) })
		if i < 0 { // a process that makes no sense
			r.broken("%v gives back %q, which it has not", p, l.Key)
			continue
		}
		h := p.open[i]
		h.over = true
		h.To = e.At.Time()
		if d := l.Deadline.Time(); d.Before(h.To) {
			h.To = d
		}
	}
	p.open = nil
}

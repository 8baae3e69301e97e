// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/verify/internal/crew"
)

const (
	// wake is how long a key may stand open beside one in the queue that is told by a
	// message: far more than that takes, and less than waiting for the next sign of
	// life with a TTL of 10 s or more.
	wake = 2 * time.Second
	// polls is the same where all of them poll one file, and keep each other from it.
	polls = 15 * time.Second
	// claim is how long a key stays with one in the queue that was killed or stopped.
	claim = 500 * time.Millisecond
	// joining is how long it may take until one that asks is in the queue.
	joining = time.Second
)

// joins notes that a process is about to ask. What LockAll holds while it waits for
// the next of its keys is not in the history, so that its waits say nothing.
func (r *run) joins(p *process, e *event) {
	if r.o.Kind == LockAll {
		return
	}
	p.waits = &history.Wait{Key: e.Keys[0], Owner: p.String(), Shared: e.Shared, Asked: e.At.Time(), From: e.At.Time().Add(joining), Away: p.stopped}
	if r.o.Kind == Semaphore {
		p.waits.Limit = r.o.Slots
	}
}

// waited notes that a process waits no longer.
func (r *run) waited(p *process, at crew.Mono) {
	if p.waits == nil {
		return
	}
	p.waits.To = at.Time()
	r.waits = append(r.waits, *p.waits)
	p.waits = nil
}

// gone: what a process had and was killed with stays for a TTL at most, and so
// does its place in the queue.
func (r *run) gone(p *process) {
	until := crew.Now().Add(r.o.TTL)
	for _, h := range slices.Concat(p.open, p.giving) {
		h.kept = until.Time()
	}
	if p.waits != nil {
		p.waits.Away = true
		r.waited(p, until)
	}
}

// idle says which keys stood open to somebody in the queue for longer than documented.
func (r *run) idle() error {
	holds := make([]history.Hold, 0, len(r.holds))
	for _, h := range r.holds {
		kept := h.Hold
		if kept.To = h.kept; kept.To.IsZero() {
			kept.To = crew.Now().Time()
		}
		holds = append(holds, kept)
	}
	lost := r.lost()
	return history.CheckIdle(holds, r.waits, func(_ string, from, to time.Time) time.Duration {
		most := lost + wake
		if strings.HasPrefix(r.o.Store, "sqlite:") {
			most = lost + polls
		}
		for _, w := range r.waits {
			if w.Away && w.Asked.Before(to) && w.To.Add(claim).After(from) {
				most += max(claim, min(r.o.TTL, 10*time.Second)) // SQLite waits for its patience
			}
		}
		return most
	})
}

// ending collects what is to be done at the end of a run.
type ending []func()

func (e *ending) Cleanup(f func()) { *e = append(*e, f) }

func (e *ending) run() {
	for _, f := range *e {
		f()
	}
}

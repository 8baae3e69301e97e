// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/verify/broken"
)

// hold is one hold of the key in its client's own view. It was asked for before the
// request that was granted, or after which the key was handed over.
type hold struct {
	history.Hold
	client, life int
	entered      bool // it began with a message, without a Try
	claimed      bool // it was renewed
}

// log records what the clients observe.
type log struct {
	w *world

	mu      sync.Mutex
	holds   []*hold
	byOwner map[string]*hold
	waited  time.Duration // the longest that a last turn took
	lost    int
	found   [promises][]string // promises that were broken, but those about holds
}

// acquired records that a client just learned of its lease.
func (l *log) acquired(p *process, lease *hasp.Lease) *hold {
	h := &hold{client: p.c.index, life: p.life, Hold: history.Hold{
		Key: key, Owner: lease.Owner(), Fence: broken.Shift(lease.Fence(), p.c.skew), Shared: lease.Mode() == hasp.Shared, Abandoned: lease.Abandoned(),
		Granted: l.w.tick(), From: time.Now(), To: lease.Deadline(),
	}}
	how := "holds"
	if h.Asked, h.entered = p.recorder.began(h.Owner); h.entered {
		how = "enters"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	if l.byOwner == nil {
		l.byOwner = map[string]*hold{}
	}
	l.byOwner[h.Owner] = h
	l.trace(how, h, nil)
	return h
}

func (l *log) trace(how string, h *hold, err error) {
	l.w.trace.add(entry{kind: how, client: h.client, life: h.life, owner: h.Owner, fence: h.Fence, till: h.To.Sub(l.w.began), shared: h.Shared, err: err})
}

// downgraded records that a client is about to downgrade.
func (l *log) downgraded(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Down = time.Now()
	l.trace("downgrades", h, nil)
}

// saw records an event of a hasp.Client.
func (l *log) saw(e hasp.Event) {
	if e.Kind != hasp.EventRenewed && e.Kind != hasp.EventLost {
		return
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.byOwner[e.Owner]
	switch {
	case e.Kind == hasp.EventLost:
		l.lost++
		l.end(h, now, "lost", e.Err)
	case h != nil && !h.Over && now.Before(h.To) && now.Add(e.Left).After(h.To):
		h.Extend(now.Add(e.Left))
		h.claimed = true
		l.trace("renewed", h, nil)
	}
}

// end records when a hold ended. l.mu is held.
func (l *log) end(h *hold, now time.Time, how string, err error) {
	if h == nil || h.Over {
		return
	}
	h.End(now)
	h.Cut = how != "releases"
	l.trace(how, h, err)
}

// count returns how many leases there were.
func (l *log) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.holds)
}

// released records that a client is about to release its lease.
func (l *log) released(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(h, time.Now(), "releases", nil)
}

// crashed records that a process ended.
func (l *log) crashed(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.holds {
		if h.client == p.c.index && h.life == p.life {
			l.end(h, time.Now(), "dies", nil)
		}
	}
}

func (l *log) progress(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waited = max(l.waited, took)
}

// extended records that a client learned of a later deadline.
func (l *log) extended(h *hold, deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Extend(deadline)
}

// find records that a promise was broken.
func (l *log) find(p Promise, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found[p] = append(l.found[p], fmt.Sprintf(format, args...))
}

// turnLimit is how long after the faults a client may have to wait for its turn:
// nodes are held back, then leases of clients that are gone, or of requests that are
// still in flight, have to expire; and there may be a queue.
func (p *Plan) turnLimit() time.Duration {
	return admission.Wait(p.MaxTTL) + p.SetBack + p.Network.LateBy + 3*p.MaxTTL + 5*time.Second
}

// register is what the lock protects: it remembers the largest fence, and the
// largest fence of a writer. The fences of readers have no order.
type register struct {
	w *world

	mu             sync.Mutex
	largest, wrote uint64
	uses           []use
}

// use is a write or a read that arrived.
type use struct {
	h        *hold
	at       time.Time
	reads    bool
	accepted bool
}

// valid reports whether the holder was entitled to that use at that time.
func (u *use) valid() bool {
	may := u.at.Before(u.h.To) && (u.reads || u.h.Down.IsZero() || u.at.Before(u.h.Down))
	return may && !u.at.Before(u.h.From)
}

func newRegister(w *world) *register { return &register{w: w} }

// send sends a write or a read, which arrives after takes.
func (r *register) send(h *hold, reads bool, takes time.Duration) {
	r.w.after(takes, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		ok, kind := h.Fence >= r.largest, "writes"
		if reads {
			ok, kind = h.Fence >= r.wrote, "reads"
		} else {
			r.wrote = max(r.wrote, h.Fence)
		}
		r.largest = max(r.largest, h.Fence)
		r.uses = append(r.uses, use{h, time.Now(), reads, ok})
		r.w.trace.add(entry{kind: kind, client: h.client, life: h.life, owner: h.Owner, fence: h.Fence, ok: ok})
	})
}

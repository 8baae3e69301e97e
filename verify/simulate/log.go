// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/admission"
)

// hold is one hold of the key in its client's own view: it may rely on the key
// from From to To, and nobody else may.
type hold struct {
	client, life int
	owner        string
	fence        uint64
	asked        int64 // tick before the request was sent that was granted, or after which the key was handed over
	granted      int64 // tick at which the client knew
	From, To     time.Duration
	entered      bool          // it began with a message, without a Try
	claimed      bool          // it was renewed
	marked       bool          // its client was told that one before it did not finish
	unfinished   bool          // it was lost, or its client died, before the release
	shared       bool          // its client only reads
	down         time.Duration // when Downgrade was called: from then on it only reads; 0: never
	over         bool          // To is final
}

// log records what the clients observe.
type log struct {
	w *world

	mu      sync.Mutex
	holds   []*hold
	byOwner map[string]*hold
	waited  time.Duration // the longest that a last turn took
	stuckAt []int         // clients without a last turn
	refused []string      // what was not granted after a gap
	lost    int
}

// acquired records that a client just learned of its lease.
func (l *log) acquired(p *process, lease *hasp.Lease) *hold {
	now := l.w.now()
	h := &hold{
		client: p.c.index, life: p.life, owner: lease.Owner(),
		fence:   lease.Fence() + uint64(p.c.skew.Microseconds()),
		granted: l.w.tick(),
		From:    now, To: now + time.Until(lease.Deadline()),
		shared: lease.Mode() == hasp.Shared, marked: lease.Abandoned(),
	}
	how := "holds"
	if h.asked, h.entered = p.recorder.began(h.owner); h.entered {
		how = "enters"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	if l.byOwner == nil {
		l.byOwner = map[string]*hold{}
	}
	l.byOwner[h.owner] = h
	l.w.trace.add(entry{kind: how, client: h.client, life: h.life, owner: h.owner, fence: h.fence, till: h.To, shared: h.shared})
	return h
}

// downgraded records that a client is about to downgrade.
func (l *log) downgraded(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.down = l.w.now()
	l.w.trace.add(entry{kind: "downgrades", client: h.client, life: h.life, owner: h.owner, fence: h.fence, till: h.To})
}

// saw records an event of a hasp.Client.
func (l *log) saw(e hasp.Event) {
	if e.Kind != hasp.EventRenewed && e.Kind != hasp.EventLost {
		return
	}
	now := l.w.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.byOwner[e.Owner]
	switch {
	case e.Kind == hasp.EventLost:
		l.lost++
		l.end(h, now, "lost", e.Err)
	case h != nil && !h.over && now < h.To && now+e.Left > h.To:
		h.To, h.claimed = now+e.Left, true
		l.w.trace.add(entry{kind: "renewed", client: h.client, life: h.life, owner: h.owner, till: h.To})
	}
}

// end records when a hold ended. l.mu is held.
func (l *log) end(h *hold, now time.Duration, how string, err error) {
	if h == nil || h.over {
		return
	}
	h.over, h.unfinished = true, how != "releases"
	h.To = min(h.To, now)
	l.w.trace.add(entry{kind: how, client: h.client, life: h.life, owner: h.owner, till: h.To, err: err})
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
	l.end(h, l.w.now(), "releases", nil)
}

// crashed records that a process ended.
func (l *log) crashed(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.holds {
		if h.client == p.c.index && h.life == p.life {
			l.end(h, l.w.now(), "dies", nil)
		}
	}
}

func (l *log) progress(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waited = max(l.waited, took)
}

func (l *log) stuck(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuckAt = append(l.stuckAt, p.c.index)
}

func (l *log) unused(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = append(l.refused, what)
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
	at       time.Duration
	reads    bool
	accepted bool
}

// valid reports whether the holder was entitled to that use at that time.
func (u *use) valid() bool {
	to := u.h.To
	if !u.reads && u.h.down != 0 {
		to = min(to, u.h.down)
	}
	return u.at >= u.h.From && u.at < to
}

func newRegister(w *world) *register { return &register{w: w} }

// send sends a write or a read, which arrives after takes.
func (r *register) send(h *hold, reads bool, takes time.Duration) {
	r.w.after(takes, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		ok, kind := h.fence >= r.largest, "writes"
		if reads {
			ok, kind = h.fence >= r.wrote, "reads"
		} else {
			r.wrote = max(r.wrote, h.fence)
		}
		r.largest = max(r.largest, h.fence)
		r.uses = append(r.uses, use{h, r.w.now(), reads, ok})
		r.w.trace.add(entry{kind: kind, client: h.client, life: h.life, owner: h.owner, fence: h.fence, ok: ok})
	})
}

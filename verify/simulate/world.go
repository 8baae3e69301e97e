// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// world is the state of one run of a plan.
type world struct {
	plan           *Plan
	variant        *Variant
	began          time.Time
	nodes          []*node
	clients        []*client
	trace          *trace
	idle           *idle
	history        history.Log
	lost, messages atomic.Int64 // leases that were lost, and messages that arrived at nodes

	over    atomic.Bool // the faults
	running sync.WaitGroup

	mu       sync.Mutex
	cuts     map[cutID]time.Duration // until when
	holds    []*hold
	register history.Register
	refused  []use              // by the register
	found    [promises][]string // promises that were broken, but those about holds
	waited   time.Duration      // the longest that a last turn took
}

// cutID is one direction of a link.
type cutID struct {
	kind         FaultKind
	client, node int
}

// Play runs a plan and judges what the clients saw. It must be called within a
// testing/synctest bubble. A nil variant is hasp as it is.
func Play(p *Plan, v *Variant) *Report {
	if v == nil {
		v = &Variant{}
	}
	w := &world{plan: p, variant: v, began: time.Now(), cuts: map[cutID]time.Duration{}}
	w.trace = &trace{w: w}
	w.idle = &idle{w: w, since: map[string]time.Duration{}, asked: map[string]*client{}, apart: map[way]time.Duration{},
		excused: map[string]time.Duration{}}
	for i := range p.Nodes {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	for i, ttl := range p.TTLs {
		w.clients = append(w.clients, &client{w: w, index: i, ttl: ttl, skew: p.Skews[i], missed: -time.Hour})
	}
	if p.Story != "" {
		w.tell()
	} else {
		w.explore()
	}
	for _, c := range w.clients {
		_ = c.cur.locks.Close()
	}
	time.Sleep(answersBy) // goroutines that still run after that have leaked
	return w.judge()
}

// explore has the clients contend for the key, under faults, and then after gaps.
func (w *world) explore() {
	for _, c := range w.clients {
		w.running.Go(c.run)
	}
	ctx, end := context.WithCancel(context.Background())
	var looks sync.WaitGroup
	looks.Go(func() { w.idle.watch(ctx) })
	w.faults()
	w.running.Wait()
	end()
	looks.Wait()
	if w.plan.May[Progress] == "" {
		w.gaps()
	}
}

// now returns the time since the run began.
func (w *world) now() time.Duration { return time.Since(w.began) }

func (w *world) network() Network {
	if w.over.Load() {
		return Network{}
	}
	return w.plan.Network
}

// faults injects the faults, each at its moment, and then ends them.
func (w *world) faults() {
	for _, f := range w.plan.Faults {
		time.Sleep(f.At - w.now())
		f.For = min(f.For, w.plan.FaultsEnd-w.now())
		w.trace.add("FAULT %+v", f)
		w.inject(f)
	}
	time.Sleep(w.plan.FaultsEnd - w.now())
	for _, n := range w.nodes {
		n.clock.set(0, 0)
	}
	w.trace.add("THE FAULTS ARE OVER")
	w.over.Store(true)
}

func (w *world) inject(f Fault) {
	n, c := w.nodes[f.Node], w.clients[f.Client]
	switch f.Kind {
	case Save:
		n.save()
	case RestartEmpty, RestartSaved, RestartKept:
		n.restart(f)
	case Flush:
		n.store.Flush()
	case Stop:
		n.stop(f.For)
	case Step:
		n.clock.set(f.By, n.clock.rate)
	case Rate:
		n.clock.set(0, f.Rate)
	case CutOut, CutIn, Reject:
		w.mu.Lock()
		defer w.mu.Unlock()
		id := cutID{f.Kind, f.Client, f.Node}
		w.cuts[id] = max(w.cuts[id], w.now()+f.For)
	case Pause:
		c.pause(f.For)
	case Crash:
		c.crash(f.For)
	}
}

// cut reports whether a direction of a link is cut now.
func (w *world) cut(kind FaultKind, c *client, n *node) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now() < w.cuts[cutID{kind, c.index, n.index}]
}

// find records that a promise was broken.
func (w *world) find(p Promise, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found[p] = append(w.found[p], fmt.Sprintf(format, args...))
}

// grants returns how many leases there were.
func (w *world) grants() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.holds)
}

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
	"github.com/hasplock/hasp/memdriver"
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

	faultsOver chan struct{} // closed when the faults are over
	running    sync.WaitGroup

	mu       sync.Mutex
	cuts     map[cutID]int
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
	w := &world{plan: p, variant: v, began: time.Now(), faultsOver: make(chan struct{}), cuts: map[cutID]int{}}
	w.trace, w.idle = &trace{w: w}, newIdle(w)
	for i := range p.Nodes {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	if p.Admitted {
		for _, n := range w.nodes {
			admit(n.store, p.MaxTTL)
		}
	}
	for i := range p.TTLs {
		w.clients = append(w.clients, newClient(w, i))
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
	looks := make(chan struct{})
	go func() { w.idle.watch(); close(looks) }()
	w.faults()
	w.running.Wait()
	close(w.idle.over)
	<-looks
	if w.plan.May[Progress] == "" {
		w.gaps()
	}
}

// admit admits the node on behalf of the operator.
func admit(s *memdriver.Store, maxTTL time.Duration) {
	rec, err := s.Record(context.Background())
	if err == nil && !rec.Voting {
		_ = s.Admit(context.Background(), rec, maxTTL) // the record was read just now
	}
}

// now returns the time since the run began.
func (w *world) now() time.Duration { return time.Since(w.began) }

// over reports whether the faults have ended.
func (w *world) over() bool {
	select {
	case <-w.faultsOver:
		return true
	default:
		return false
	}
}

func (w *world) network() Network {
	if w.over() {
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
	close(w.faultsOver)
}

func (w *world) inject(f Fault) {
	switch f.Kind {
	case Save:
		w.nodes[f.Node].save()
	case RestartEmpty, RestartSaved, RestartKept:
		w.nodes[f.Node].restart(f)
	case Flush:
		w.nodes[f.Node].store.Flush()
	case Stop:
		w.nodes[f.Node].stop(f.For)
	case Step:
		w.nodes[f.Node].clock.set(f.By, w.nodes[f.Node].clock.rate)
	case Rate:
		w.nodes[f.Node].clock.set(0, f.Rate)
	case CutOut, CutIn, Reject:
		id := cutID{f.Kind, f.Client, f.Node}
		w.cutBy(id, 1)
		time.AfterFunc(f.For, func() { w.cutBy(id, -1) })
	case Pause:
		w.clients[f.Client].pause(f.For)
	case Crash:
		w.clients[f.Client].crash(f.For)
	}
}

func (w *world) cutBy(id cutID, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[id] += n
}

// cut reports whether a direction of a link is cut now.
func (w *world) cut(kind FaultKind, c *client, n *node) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts[cutID{kind, c.index, n.index}] > 0
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

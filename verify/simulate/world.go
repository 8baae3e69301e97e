// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/verify/broken"
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

// Variant breaks a part of the algorithm, to show that the oracles notice. The zero value and nil are hasp as it is.
type Variant struct {
	node, link, whole broken.Fault                      // of the nodes, of what a client reaches of each, and of a client's quorum or lone store
	both              func() (link, whole broken.Fault) // instead, what the two of a client share
	lists             func(client int) []int            // the nodes that a client takes for all
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

// trace is all that happened in a run, to be read when something is wrong. Its text is made only when it is printed.
type trace struct {
	w *world

	mu    sync.Mutex
	lines []line
}

type line struct {
	at     time.Duration
	format string
	args   []any // which do not change
}

func (t *trace) add(format string, args ...any) {
	at := t.w.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line{at, format, args})
}

// nothing matches what says nothing in a request or an answer: fields that are not set, labels, and the end of an owner.
var nothing = regexp.MustCompile(`(Claim|[A-Z]\w+Request):|Key:` + key + ` |Label:\{[^}]*\} *` +
	`|\b[A-Z]\w*:(0s?|false|<nil>|\[\])?( +|(\}))|\b([A-Z2-7]{6})[A-Z2-7]{20}\b`)

// String returns the trace as text.
func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, l := range t.lines {
		text := fmt.Sprintf(l.format, l.args...)
		fmt.Fprintf(&b, "%11.6f  %s\n", l.at.Seconds(), nothing.ReplaceAllString(text, "$4$5"))
	}
	return b.String()
}

// short abbreviates an owner.
func short(owner string) string { return owner[:min(len(owner), 6)] }

// Report is the result of a run.
type Report struct {
	Plan       *Plan
	Found      [promises][]string // where each promise was broken, also where the plan allows it
	Violations []string           // where it does not

	Holds, Lost, Messages int
	Entered               int           // holds that began with a message, without a Try
	Refused               int           // writes that the register refused
	Waited                time.Duration // the longest wait for a turn after the faults
	Free                  time.Duration // the longest time for which a waiter could have had the key
	trace                 *trace
}

// judge checks what was recorded.
func (w *world) judge() *Report {
	holds := w.history.Holds()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &Report{Plan: w.plan, Found: w.found, Holds: len(holds), Lost: int(w.lost.Load()), Messages: int(w.messages.Load()),
		Refused: len(w.refused), Waited: w.waited, Free: w.idle.longest, trace: w.trace}
	for i := range holds {
		holds[i].Owner = holds[i].Since(w.began) // as the trace says when
	}
	for _, h := range w.holds {
		if h.entered {
			r.Entered++
		}
	}
	r.Found[Exclusion] = history.Overlaps(holds)
	r.Found[Fences] = history.Falls(holds, w.plan.May[Exclusion] == "")
	if w.plan.Lone {
		r.Found[Told] = history.Unreported(holds)
	}
	for _, u := range w.refused {
		if u.valid() {
			r.Found[Register] = append(r.Found[Register], "a write or a read of a valid holder was refused: "+u.Since(w.began))
		}
	}
	for p, found := range r.Found {
		if w.plan.May[p] == "" {
			r.Violations = append(r.Violations, found...)
		}
	}
	return r
}

// String summarizes a run.
func (r *Report) String() string {
	p := *r.Plan
	p.Faults = nil // they are in the trace
	return fmt.Sprintf("%+v\n%d holds, %d of them entered, %d lost, %d messages, %d writes refused; ",
		p, r.Holds, r.Entered, r.Lost, r.Messages, r.Refused) +
		fmt.Sprintf("the last turn came %v after the faults; free beside a waiter for %v\n%s", r.Waited, r.Free, strings.Join(r.Violations, "\n"))
}

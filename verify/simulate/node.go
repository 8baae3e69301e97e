// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/verify/broken"
)

// clock is the wall clock of a node: it may be stepped, and has a rate of its own.
type clock struct {
	mu   sync.Mutex
	at   time.Time // when it showed wall
	wall time.Time
	rate float64 // seconds per second, less 1
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

func (c *clock) read() time.Time {
	passed := time.Since(c.at)
	return c.wall.Add(passed + time.Duration(float64(passed)*c.rate))
}

// set steps the clock, and changes its rate.
func (c *clock) set(by time.Duration, rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.at, c.rate = c.read().Add(by), time.Now(), rate
}

// node is one store, as a process on a machine of its own.
type node struct {
	w      *world
	index  int
	clock  *clock
	store  *memdriver.Store
	image  *memdriver.Store // which idle inspects in its place
	serves broken.Node      // the store, with what is broken

	mu      sync.Mutex
	down    int      // restarts under way
	stopped int      // how many Stop faults are in effect
	queue   []func() // what arrived while it was stopped
	saved   *memdriver.Snapshot
}

var errRefused = errors.New("simulated: connection refused")

func newNode(w *world, i int) *node {
	n := &node{w: w, index: i, clock: &clock{at: w.began, wall: w.began.Add(w.plan.Offsets[i]), rate: w.plan.Rates[i]}}
	n.store, n.image = n.newStore(), n.newStore()
	n.serves = broken.New(n.store, w.variant.node)
	if rec, err := n.store.Record(context.Background()); w.plan.Admitted && err == nil && !rec.Voting { // by an operator
		_ = n.store.Admit(context.Background(), rec, w.plan.MaxTTL) // the record was read just now
	}
	return n
}

// newStore returns an empty store with the node's clock. A store that is used alone has no node record.
func (n *node) newStore() *memdriver.Store {
	o := memdriver.NodeOptions{MaxTTL: n.w.plan.MaxTTL, Now: n.clock.now}
	if n.w.plan.Lone {
		o.MaxTTL = 0
	}
	return memdriver.NewNode(o)
}

// arrive carries out a request, now or when the node is resumed. err says that the node was down.
func (n *node) arrive(do func(err error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.down > 0:
		do(errRefused)
	case n.stopped > 0:
		n.queue = append(n.queue, func() { do(nil) })
	default:
		do(nil)
	}
}

// stop suspends the node for d.
func (n *node) stop(d time.Duration) {
	n.mu.Lock()
	n.stopped++
	n.mu.Unlock()
	time.AfterFunc(d, n.resume)
}

// resume carries out what arrived meanwhile, in random order.
func (n *node) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped--; n.stopped > 0 {
		return
	}
	queue := n.queue
	n.queue = nil
	rand.New(rand.NewPCG(n.w.plan.Seed, uint64(len(queue)))).Shuffle(len(queue), func(i, j int) {
		queue[i], queue[j] = queue[j], queue[i]
	})
	for _, do := range queue {
		do()
	}
}

func (n *node) save() {
	s := n.store.Snapshot()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.saved = s
}

// restart kills the node, and starts it with the data of its disk.
func (n *node) restart(f Fault) {
	n.mu.Lock()
	n.down++
	n.queue = nil
	from := n.saved
	switch f.Kind {
	case RestartEmpty:
		from = nil
	case RestartKept:
		from = n.store.Snapshot()
	}
	n.mu.Unlock()
	n.clock.set(f.By, n.clock.rate)
	time.AfterFunc(f.For, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.store.Restart(from)
		n.down--
	})
}

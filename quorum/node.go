// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
)

// How long a node may take to answer: a share of the TTL within bounds, and more
// when round trips take longer, up to another share.
const (
	ttlShare    = 100
	minTimeout  = 25 * time.Millisecond
	maxTimeout  = 50 * time.Millisecond
	growthShare = 10
	minTTL      = 4 * minTimeout // less would be over before a slow node is given up
)

// node is one of the stores. While it is in service, everything is sent to it.
// Once it was silent for a node time-out, or says that it does not vote, nothing
// is but one probe at a time, until it answers well.
type node struct {
	d     *Driver
	index int
	name  string
	drv   driver.Node
	rec   driver.Recorded // nil: it keeps no record
	async driver.Async    // nil: each request has a goroutine

	heard atomic.Int64 // when it last answered, on the monotonic clock
	trip  roundTrip
	life  atomic.Pointer[string] // names the present life of its store, when that is known
	poor  atomic.Bool            // it failed a Try, and has not written since: no place for the line

	mu       sync.Mutex
	out      error              // why it is out of service; nil: it is in service
	record   driver.Record      // the latest that was seen
	owed     map[driver.ID]debt // what to release there when it answers
	settling bool               // settleSoon is at work
	healing  bool               // heal is at work
	sweepAt  int                // look for debts that are over when there are so many
	left     time.Duration      // of a wait, as of leftAt
	leftAt   time.Time
}

func newNode(d *Driver, i int, drv driver.Node) *node {
	n := &node{d: d, index: i, name: nameOf(&d.o, i), drv: drv, owed: map[driver.ID]debt{}}
	n.rec, _ = drv.(driver.Recorded)
	n.async, _ = drv.(driver.Async)
	n.heard.Store(math.MinInt64) // a fake clock may be before start
	return n
}

// lifeName names the present life of the node's store. Where that is not known, it
// comes after all that are.
func (n *node) lifeName() string {
	if life := n.life.Load(); life != nil {
		return *life
	}
	return "\xff" + string(rune('a'+n.index))
}

// lives notes the present life of the node's store.
func (n *node) lives(life string) {
	if old := n.life.Load(); life != "" && (old == nil || *old != life) {
		n.life.Store(&life)
		n.poor.Store(false)
		n.d.route()
	}
}

var start = time.Now()

// mono is the monotonic clock.
func mono() int64 { return int64(time.Since(start)) }

// roundTrip is how long answers take.
type roundTrip struct {
	ns    atomic.Int64 // the longest of late, forgotten slowly
	usual atomic.Int64 // a moving average, once there are enough
	count atomic.Int64
}

// enough round trips say what is usual: the first ones open connections.
const enough = 32

// sample notes a round trip. Now and then it says that it is time to look whether
// another node is the better line node.
func (t *roundTrip) sample(took int64) (look bool) {
	for {
		old := t.ns.Load()
		if t.ns.CompareAndSwap(old, max(took, old-old/64)) {
			break
		}
	}
	n := t.count.Add(1)
	if n > enough {
		t.usual.Add((took - t.usual.Load()) / 16) // a sample that is lost to another is no loss
	} else if n == enough {
		t.usual.Store(took)
	}
	return n%(8*enough) == 0
}

// timeout is how long a node may take for a request about a lease of ttl, if its
// round trips are short.
func (d *Driver) timeout(ttl time.Duration) time.Duration {
	if d.o.NodeTimeout > 0 {
		return d.o.NodeTimeout
	}
	return min(max(ttl/ttlShare, minTimeout), maxTimeout)
}

// dialing is how many times longer the first answer may take: it needs a connection.
const dialing = 10

// timeout is the same for this node.
func (n *node) timeout(ttl time.Duration) time.Duration {
	base, most := n.d.timeout(ttl), ttl/growthShare
	if n.heard.Load() == math.MinInt64 {
		return max(base, min(dialing*base, most))
	}
	return max(base, min(4*time.Duration(n.trip.ns.Load()), most))
}

// serving says whether requests are sent to the node.
func (n *node) serving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out == nil
}

// trouble is why the node is out of service, as of now; nil when it is not.
func (n *node) trouble() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if held := (*admission.HeldBack)(nil); errors.As(n.out, &held) && !n.leftAt.IsZero() {
		return &admission.HeldBack{Left: max(n.left-time.Since(n.leftAt), 0)}
	}
	return n.out
}

// answered notes that a request that began at begun had an answer.
func (n *node) answered(begun int64) {
	now := mono()
	n.heard.Store(now)
	if n.trip.sample(now - begun) {
		n.d.route()
	}
}

// failed judges an error of a request that began at begun. A node that said
// anything since is only busy.
func (n *node) failed(begun int64, err error) {
	silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if !silent && n.drv.Classify(err) != driver.ClassUnreachable {
		n.heard.Store(mono()) // an error is an answer, too
		return
	}
	if n.heard.Load() > mono()-max(int64(n.d.timeout(0)), n.trip.ns.Load()) && n.heard.Load() >= begun {
		return // it is only busy
	}
	if silent {
		err = errSilent
	}
	n.leave(err)
}

// leave takes the node out of service until it answers again.
func (n *node) leave(why error) {
	n.mu.Lock()
	first := n.out == nil
	n.out = why
	n.mu.Unlock()
	if first {
		n.d.route()
		n.d.spawn(n.watchOver)
	}
}

// call runs f, a request to the node about a lease of ttl. A node that is busy,
// and answers others, may take longer than the node time-out.
func (n *node) call(ttl time.Duration, f func(ctx context.Context) error) error {
	g := n.guard(n.d.life, ttl, max(n.d.timeout(ttl), ttl/growthShare))
	defer g.stop()
	err := f(g.ctx)
	if err == nil || errors.Is(err, driver.ErrNotHeld) {
		n.answered(g.begun)
	} else if n.d.life.Err() == nil {
		n.failed(g.begun, err)
	}
	return err
}

// guard watches over one request.
type guard struct {
	n      *node
	ctx    context.Context // ends when the node is given up
	cancel context.CancelFunc
	begun  int64
	limit  time.Duration // the node time-out
	until  int64         // the request is given up, even if the node is only busy; 0: never

	mu    sync.Mutex
	timer *time.Timer
	due   int64
}

// guard begins to watch over a request. most bounds how long it may take while
// the node answers others; 0: as long as parent.
func (n *node) guard(parent context.Context, ttl, most time.Duration) *guard {
	g := &guard{n: n, begun: mono(), limit: n.timeout(ttl)}
	g.ctx, g.cancel = context.WithCancel(parent)
	if most > 0 {
		g.until = g.begun + int64(most)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due = g.begun + int64(g.limit)
	g.timer = time.AfterFunc(g.limit, g.look)
	return g
}

// look gives the node up when it was silent for a node time-out. When this look
// comes late, it is this process that stood still, and may have answers to read.
func (g *guard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := mono()
	late := now-g.due > int64(g.limit)/2
	silent := now - max(g.begun, g.n.heard.Load())
	switch {
	case g.ctx.Err() != nil:
		return
	case !late && silent >= int64(g.limit):
		g.n.failed(g.begun, context.DeadlineExceeded)
		g.cancel()
		return
	case !late && g.until != 0 && now >= g.until:
		g.cancel()
		return
	}
	next := int64(g.limit)
	if !late {
		next = max(next-max(silent, 0), int64(g.limit)/8)
	}
	g.due = now + next
	g.timer.Reset(time.Duration(next))
}

func (g *guard) stop() {
	g.mu.Lock()
	g.timer.Stop()
	g.mu.Unlock()
	g.cancel()
}

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
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/ballot"
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

// An Async is a node that can start requests without a goroutine for each. Its
// methods are Vote and Withdraw, except that they report the outcome to done. It is
// called once: soon after the answer arrived or the request was abandoned, which may
// be long after ctx ended, and possibly before the method returned. It must not
// block.
type Async interface {
	voting.Node
	StartVote(ctx context.Context, r voting.VoteRequest, done func(driver.Result, error))
	StartWithdraw(ctx context.Context, r voting.WithdrawRequest, done func(error))
}

// node is one of the stores. While it is in service, everything is sent to it.
// Once it was silent for a node time-out, or says that it does not vote, nothing
// is but one probe at a time, until it answers well.
type node struct {
	d     *Driver
	index int
	name  string
	drv   voting.Node
	rec   voting.Recorded // nil: it keeps no record
	async Async           // nil: each request has a goroutine

	heard atomic.Int64 // when it last answered, by Driver.now
	trip  roundTrip
	life  atomic.Pointer[string] // names the present life of its store, when that is known
	// readOnly: it refused a Try with an error, and has not written since. It is no
	// place for the queue.
	readOnly atomic.Bool

	mu       sync.Mutex
	out      error         // why it is out of service; nil: it is in service
	record   voting.Record // the latest that was seen
	wait     wait          // while it is held back
	cleanups cleanups
	retrying bool // retryWrite is at work
}

// wait is what is left of that of a node that is held back.
type wait struct {
	left time.Duration
	asOf time.Time // zero: it is not known
}

func newNode(d *Driver, i int, drv voting.Node) *node {
	n := &node{d: d, index: i, name: nameOf(&d.o, i), drv: drv, cleanups: cleanups{all: map[driver.ID]cleanup{}}}
	n.rec, _ = drv.(voting.Recorded)
	n.async, _ = drv.(Async)
	n.heard.Store(never)
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
		n.readOnly.Store(false)
		n.d.route()
	}
}

// now is the time since the driver was made, on the monotonic clock.
func (d *Driver) now() time.Duration { return time.Since(d.made) }

// never is when a node was heard that was not.
const never = math.MinInt64

// hears notes that the node said something.
func (n *node) hears() { n.heard.Store(int64(n.d.now())) }

func (n *node) lastHeard() time.Duration { return time.Duration(n.heard.Load()) }

// roundTrip is how long answers take.
type roundTrip struct {
	ns    atomic.Int64 // the longest of late, forgotten slowly
	usual atomic.Int64 // a moving average, once there are enough
	count atomic.Int64
}

// enough round trips say what is usual: the first ones open connections.
const enough = 32

// sample notes a round trip. Now and then it says that it is time to look whether
// another node is the better queue node.
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
	if n.heard.Load() == never {
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
	if held := (*admission.HeldBack)(nil); errors.As(n.out, &held) && !n.wait.asOf.IsZero() {
		return &admission.HeldBack{Left: max(n.wait.left-time.Since(n.wait.asOf), 0)}
	}
	return n.out
}

// answered notes that a request that began at begun had an answer.
func (n *node) answered(begun time.Duration) {
	now := n.d.now()
	n.heard.Store(int64(now))
	if n.trip.sample(int64(now - begun)) {
		n.d.route()
	}
}

// failed judges an error of a request that began at begun. A node that said
// anything since is only busy.
func (n *node) failed(begun time.Duration, err error) {
	silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if !silent && n.drv.Classify(err) != driver.ClassUnreachable {
		n.hears() // an error is an answer, too
		return
	}
	if heard := n.lastHeard(); heard > n.d.now()-max(n.d.timeout(0), time.Duration(n.trip.ns.Load())) && heard >= begun {
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

// call runs f, a request to the node about a lease of ttl.
func (n *node) call(ttl time.Duration, f func(ctx context.Context) error) error {
	o := n.fanout(ttl, nil)
	err := f(o.ctx)
	o.ended(n, err)
	return err
}

// fanout begins a request to this node alone.
func (n *node) fanout(ttl time.Duration, silent func(*node)) *fanout {
	var one ballot.Set
	one.Add(n.index)
	return n.d.fanout(n.d.life, one, ttl, n.d.most(ttl), silent)
}

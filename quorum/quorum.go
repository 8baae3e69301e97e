// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/ballot"
)

// maxNodes bounds what one driver is made of.
const maxNodes = ballot.MaxNodes

// Options change how the nodes are asked. The zero value, and nil, mean the
// defaults.
type Options struct {
	// Names are what errors call the nodes, in their order, such as
	// "redis-1:6379". nil: node 1, node 2 and so on.
	Names []string
	// NodeTimeout is how long a node may take to answer, whatever it is asked; to
	// confirm a subscription, for which a waiter waits before it is in the queue, no
	// longer than 3 seconds. 0 means a hundredth of the TTL, at least 25 and at
	// most 50 milliseconds. It grows with the round trips that are measured, to a
	// tenth of the TTL; the first answer, for which a connection is opened, may
	// take ten times as long within that.
	NodeTimeout time.Duration
	// StateDir is a directory in which the waits for nodes that are held back
	// are remembered, so that processes that live for less than such a wait
	// finish them together. Empty: each process waits for itself.
	StateDir string
	// StateFailed, if not nil, is told once why a wait was not kept in StateDir: then a node is held back, and
	// processes that live for less than its wait never let it vote. It must not block.
	StateFailed func(error)
}

// Driver combines several drivers, its nodes. Make one with New. All methods may be
// called by any number of goroutines at once.
type Driver struct {
	nodes  []*node
	need   int // a majority
	traits driver.Traits
	o      Options
	bad    error     // the configuration cannot work
	made   time.Time // see now

	owners owners
	clock  proposals
	waits  *admission.Waits

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup

	queue atomic.Pointer[node] // where the queue is; nil: no node will do
	met   atomic.Bool          // every node in service was heard once

	mu      sync.Mutex
	moved   chan struct{}       // closed, and replaced, when the queue moves
	few     bool                // too few nodes for a majority were in service
	waiters map[string][]*watch // by key, the longest waiters first
	shut    bool
}

var (
	_ driver.Driver   = (*Driver)(nil)
	_ operator.Driver = (*Driver)(nil)
)

// New makes a Driver of an odd number of nodes, 3 to 7, each a store of its own
// that shares nothing with the others. It takes the nodes over: Close closes
// them. New does no I/O; a set of nodes that cannot work is reported by Check,
// by hasp.New, and by every call.
//
// Every node must survive the restart of its store (see driver.Traits), as those of
// redisdriver.NewNode do, and have the same largest TTL.
func New(nodes []voting.Node, o *Options) *Driver {
	d := &Driver{made: time.Now(), need: len(nodes)/2 + 1, moved: make(chan struct{}), waiters: map[string][]*watch{}}
	if o != nil {
		d.o = *o
	}
	d.bad = refuse(nodes, &d.o)
	d.waits = admission.New(d.o.StateDir, d.o.StateFailed)
	d.life, d.end = context.WithCancel(context.Background())
	d.owners.all = map[driver.ID]*owner{}
	for i, n := range nodes {
		d.nodes = append(d.nodes, newNode(d, i, n))
	}
	if d.bad == nil {
		d.route()
		d.traits = d.merge()
	} else {
		d.traits = driver.Traits{Engine: engine}
	}
	return d
}

const engine = "redlock"

// refuse says why these nodes make no quorum.
func refuse(nodes []voting.Node, o *Options) error {
	n := len(nodes)
	switch {
	case n < 3 || n > maxNodes:
		return fmt.Errorf("redlock: there are %d nodes: it takes 3, 5 or %d", n, maxNodes)
	case n%2 == 0:
		return fmt.Errorf("redlock: there are %d nodes: an even number survives no more failures than %d, and one more can fail: take %d or %d",
			n, n-1, n-1, n+1)
	case len(o.Names) != 0 && len(o.Names) != n:
		return fmt.Errorf("redlock: there are %d names for %d nodes", len(o.Names), n)
	case o.NodeTimeout < 0:
		return fmt.Errorf("redlock: the node time-out is %v: it must be positive, or 0 for the default", o.NodeTimeout)
	}
	for i, d := range nodes {
		if d == nil {
			return fmt.Errorf("redlock: %s is nil", nameOf(o, i))
		}
		if err := d.Check(); err != nil {
			return fmt.Errorf("redlock: %s: %w", nameOf(o, i), err)
		}
		if j := slices.IndexFunc(nodes[:i], func(o voting.Node) bool { return same(o, d) }); j >= 0 {
			return fmt.Errorf("redlock: %s and %s are one driver: it would have two votes", nameOf(o, j), nameOf(o, i))
		}
		switch t := d.Traits(); {
		case t.Survives&driver.StoreRestart == 0:
			return fmt.Errorf("redlock: %s (%s) would vote again right after a restart, whatever it forgot: give it a node record (redisdriver.NewNode)",
				nameOf(o, i), t.Engine)
		case t.MaxTTL != nodes[0].Traits().MaxTTL:
			return fmt.Errorf("redlock: the largest TTL is %v on %s and %v on %s: it must be the same everywhere",
				nodes[0].Traits().MaxTTL, nameOf(o, 0), t.MaxTTL, nameOf(o, i))
		}
	}
	return nil
}

// same says whether two drivers are one value.
func same(a, b voting.Node) bool {
	return reflect.TypeOf(a).Comparable() && a == b
}

func nameOf(o *Options, i int) string {
	if len(o.Names) > i {
		return driver.Printable(o.Names[i])
	}
	return fmt.Sprintf("node %d", i+1)
}

// merge is what the nodes promise together.
func (d *Driver) merge() driver.Traits {
	t := driver.Traits{
		Engine:         engine,
		Queue:          driver.QueueHint,
		Tells:          driver.TellsFree | driver.TellsWanted, // by the node of the queue, or any other that has heard of a waiter
		Fencing:        true,
		Shared:         true,
		MarksAbandoned: true,
		MinTTL:         minTTL,
		Survives:       driver.StoreRestart | driver.StoreLoss | driver.ClockStep | driver.Failover,
	}
	for _, n := range d.nodes {
		nt := n.drv.Traits()
		t.MinTTL, t.MaxTTL, t.Survives, t.Tells = max(t.MinTTL, nt.MinTTL), nt.MaxTTL, t.Survives&nt.Survives, t.Tells&nt.Tells
		t.Shared, t.MarksAbandoned = t.Shared && nt.Shared, t.MarksAbandoned && nt.MarksAbandoned
		if nt.Queue == driver.QueueNone {
			t.Queue = driver.QueueNone
		}
	}
	return t
}

// Check says why these nodes make no quorum. It does no I/O.
func (d *Driver) Check() error { return d.bad }

// Traits says what the nodes promise together.
func (d *Driver) Traits() driver.Traits { return d.traits }

// closeTime bounds what Close waits for.
const closeTime = time.Second

// Close ends what is under way and closes the nodes.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
	d.end()
	ended := make(chan struct{})
	go func() {
		d.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTime): // a node's client that cannot be interrupted
	}
	var errs []error
	for _, n := range d.nodes {
		if n.drv != nil {
			errs = append(errs, n.drv.Close())
		}
	}
	return errors.Join(errs...)
}

// spawn runs f in the background, unless Close has begun.
func (d *Driver) spawn(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return false
	}
	d.running.Go(f)
	return true
}

// check refuses what needs no round trip to be refused.
func (d *Driver) check(ctx context.Context, c driver.Claim) error {
	switch {
	case d.bad != nil:
		return d.bad
	case c.Limit > 0:
		n := len(d.nodes)
		return fmt.Errorf("redlock: at most %d holders: %w: each node would count its own, and with %d votes of %d for each holder there could be %d; take one store, or %d locks",
			c.Limit, driver.ErrUnsupported, d.need, n, c.Limit*n/d.need, c.Limit)
	case c.Mode != driver.Exclusive && !d.traits.Shared:
		return fmt.Errorf("redlock: a node has no shared locks: %w", driver.ErrUnsupported)
	}
	if err := c.Check(); err != nil {
		return fmt.Errorf("redlock: %w", err)
	}
	return ctx.Err()
}

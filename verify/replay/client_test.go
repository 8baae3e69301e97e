// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/verify/model"
)

// client is the client of one owner: a real quorum, with or without a hasp.Client over it.
type client struct {
	w     *world
	owner int
	gates [nodes]*gate
	d     *quorum.Driver
	core  *hasp.Client // nil: the quorum alone

	mu     sync.Mutex
	req    contend.Owner // as it was sent last
	fences []pair        // of the story's key, rising
	values []int         // that its proposals have in the story, in order
	call   *call         // under way, or returned
	lease  *lease
	until  time.Time // of a lease without a hasp.Client
	begun  time.Time // the latest call
	hold   *hasp.Lease

	renewals int // of single votes
	row      int // the longest that a node granted
}

// pair is a proposal of the quorum, and what the nodes get in its place: the
// fence of the story.
type pair struct{ own, node uint64 }

// call is a Try or a Renew.
type call struct {
	over chan struct{}
	err  error
	res  driver.Result // of a Try of the quorum
}

// asks records a proposal: a new one corresponds to the next of the story's.
func (c *client) asks(r contend.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.req = r
	if n := len(c.fences); n > 0 && r.Fence <= c.fences[n-1].own {
		return
	}
	p := pair{r.Fence, 0}
	if n := len(c.fences); n < len(c.values) {
		p.node = c.w.fence(c.values[n])
	} else {
		p.node = r.Fence - c.fences[n-1].own + c.fences[n-1].node
	}
	c.fences = append(c.fences, p)
}

func (c *client) round(fence uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, p := range c.fences {
		if p.own == fence {
			return k + 1
		}
	}
	return 0
}

// toNode and fromNode translate fences, those between by their distance.
func (c *client) toNode(fence uint64) uint64 {
	return c.translate(fence, func(p pair) (from, to uint64) { return p.own, p.node })
}

func (c *client) fromNode(fence uint64) uint64 {
	return c.translate(fence, func(p pair) (from, to uint64) { return p.node, p.own })
}

func (c *client) translate(fence uint64, of func(pair) (from, to uint64)) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fence <= 1 { // none, and the smallest one
		return fence
	}
	for _, p := range c.fences {
		if from, to := of(p); fence <= from {
			return to - (from - fence)
		}
	}
	if len(c.fences) == 0 {
		return fence
	}
	from, to := of(c.fences[len(c.fences)-1])
	return to + (fence - from)
}

// long is longer than any story lasts.
const long = time.Hour

// newClient connects an owner's client to the nodes, and makes it acquire another key,
// so that it has had an answer from all. lists may name a node twice; queueNode is the
// node with the queue of waiters.
func newClient(w *world, owner int, lists [nodes]int, queueNode int, timeout time.Duration) *client {
	c := &client{w: w, owner: owner}
	var ds []driver.Node
	for i := range c.gates {
		c.gates[i] = &gate{member: w.seen[owner][lists[i]], owner: c, first: lists[i] == queueNode, limit: w.maxTTL(owner)}
		ds = append(ds, c.gates[i])
	}
	c.d = quorum.New(ds, &quorum.Options{NodeTimeout: timeout})
	c.req = contend.Owner{Key: key, Owner: fmt.Sprintf("%c2345672345672345672345672", 'A'+owner), Label: "{}", TTL: w.ttl(owner), Fences: int(w.fences().Block)}
	if lists == [nodes]int{0, 1, 2} {
		warm := c.req
		warm.Key, warm.Fences = fmt.Sprint("another key ", owner), 0
		_, err := contend.Try(context.Background(), c.d, warm)
		if err == nil {
			err = contend.Release(context.Background(), c.d, warm)
		}
		if err != nil {
			w.t.Fatalf("nobody wants this key: %v", err)
		}
	}
	return c
}

// withCore puts a hasp.Client over the quorum.
func (c *client) withCore() {
	var err error
	if c.core, err = hasp.New(c.d, nil); err != nil {
		c.w.t.Fatal(err)
	}
}

// begin begins a call.
func (c *client) begin(f func(ctx context.Context, k *call)) {
	k := &call{over: make(chan struct{})}
	c.call, c.begun = k, time.Now()
	go func() {
		defer close(k.over)
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		f(ctx, k)
	}()
}

// try asks for the key.
func (c *client) try() {
	r := c.req
	r.Fence, r.Raise = 0, false
	c.begin(func(ctx context.Context, k *call) {
		if c.core == nil {
			if k.res, k.err = contend.Try(ctx, c.d, r); k.err == nil && !k.res.Granted {
				k.err = fmt.Errorf("refused: %s", answer(k.res, nil))
			}
			return
		}
		c.hold, k.err = c.core.Mutex(key, &hasp.LockOptions{TTL: r.TTL, NoRenew: true}).TryLock(ctx)
	})
}

// renew prolongs the lease, once.
func (c *client) renew() {
	r := c.req
	c.begin(func(ctx context.Context, k *call) {
		if c.core != nil {
			k.err = c.hold.Extend(ctx, r.TTL)
			return
		}
		contend.Renew(ctx, c.d, []contend.Owner{r}, func(_ int, a driver.Renewal) { k.err = a.Err })
	})
}

// returned says whether the call is over.
func (c *client) returned() bool {
	select {
	case <-c.call.over:
		return true
	default:
		return false
	}
}

// ends waits until the call is over: nodes that do not answer are given up.
func (c *client) ends() {
	for range 60 {
		synctest.Wait()
		if c.returned() {
			return
		}
		time.Sleep(time.Second)
	}
}

// deadline is that of the lease, as the client knows it.
func (c *client) deadline() time.Time {
	if c.core != nil {
		return c.hold.Deadline()
	}
	return c.until
}

// counts sets the deadline of a lease without a hasp.Client.
func (c *client) counts() {
	start := c.begun
	if c.w.rules.receipt {
		start = time.Now()
	}
	if until := start.Add(c.req.TTL); until.After(c.until) {
		c.until = until
	}
}

// stands reports whether the client believes that it holds the lease.
func (c *client) stands() bool {
	if c.again() {
		return true // nothing ends there
	}
	if c.core != nil {
		return c.hold.Err() == nil
	}
	return time.Now().Before(c.until)
}

// again reports whether the story is about an owner that asks again.
func (c *client) again() bool {
	_, ok := c.w.story.Model.(model.Again)
	return ok
}

// silenceCounts counts a missing answer as a vote.
func (c *client) silenceCounts(k kind) {
	for _, g := range c.gates {
		if m := g.take(k, 1); m != nil {
			m.yes()
		}
	}
}

// saw records how many fences a node granted.
func (c *client) saw(fences int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.row = max(c.row, fences)
}

func (c *client) longestRow() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(c.row)
}

// close closes the client and its gates.
func (c *client) close() {
	for _, g := range c.gates {
		g.end()
	}
	if c.call != nil {
		<-c.call.over
	}
	if c.core != nil {
		_ = c.core.Close() // a lease that cannot be released does not matter
	} else {
		_ = c.d.Close()
	}
}

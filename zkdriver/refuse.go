// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// wait keeps a place, and watches for the end of the node that it waits for.
func (a *attempt) wait(q queue, i int) (*driver.Result, error) {
	c, before := a.d.c, q.before(i)
	c.mu.Lock()
	if a.e.live() {
		c.last(a.e, time.Now().Add(a.r.Patience))
		a.e.placed = true
	}
	watched := a.e.watch != nil && a.e.watched == before
	c.mu.Unlock()
	if watched {
		return a.refuse(q, i)
	}
	w := &zk.Watch{}
	w.Fire = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if a.e.watch == w {
			a.e.watch, a.e.watched = nil, ""
			c.hint(a.e.place)
		}
	}
	c.mu.Lock()
	if a.e.watch != nil {
		c.zk.Forget(a.e.watch)
	}
	if a.e.live() {
		a.e.watch, a.e.watched = w, before
	}
	c.mu.Unlock()
	watch, gets := zk.Children(a.path(before), w), a.holders(q, i)
	err := a.do(append([]*zk.Call{watch}, gets...)...)
	if err == nil && watch.Err == nil && (before != leases || q.same(watch.Children)) {
		return a.refused(q, i, gets)
	}
	c.mu.Lock()
	if a.e.watch == w {
		a.e.watch, a.e.watched = nil, ""
	}
	c.mu.Unlock()
	if err == nil && !absent(watch.Err) {
		err = watch.Err
	}
	return nil, err
}

// Of how many nodes a refusal reads the data: of all that hold the key, when the next turn is ours, or of the first ones of those before us.
const (
	looks = 64
	few   = 2
)

// holders reads the nodes that are in the way of the node at i.
func (a *attempt) holders(q queue, i int) (gets []*zk.Call) {
	n := min(few, i)
	if q.ahead(i) == 0 {
		n = min(q.holders(), looks)
	}
	for _, h := range q[:n] {
		gets = append(gets, zk.Get(a.path(h.name)))
	}
	return gets
}

// refuse says what is in the way of the node at i, or of a node behind all of them.
func (a *attempt) refuse(q queue, i int) (*driver.Result, error) {
	gets := a.holders(q, i)
	if err := a.do(gets...); err != nil {
		return nil, err
	}
	return a.refused(q, i, gets)
}

// refused is refuse with what holders has read. It is nil when the node at i may be next by now, and has to look
// again. A node with others before it need not: where many wait, the holder has often released the key in the meantime,
// and the next in order has it.
func (a *attempt) refused(q queue, i int, gets []*zk.Call) (*driver.Result, error) {
	res := &driver.Result{Why: driver.Held, Ahead: q.ahead(i)}
	for j, get := range gets {
		switch {
		case absent(get.Err) && j == 0 && res.Ahead == 0:
			return nil, nil
		case absent(get.Err):
			continue
		case get.Err != nil:
			return nil, get.Err
		}
		if res.Holder == (driver.Holder{}) {
			res.Holder = holder(q[j], get.Data)
		}
		if res.Ahead == 0 && !q[j].foreign() {
			res.RetryIn = sooner(res.RetryIn, decode(get.Data).ttl, a.r.Mode, q[j].kind)
		}
	}
	if len(q) > 0 && res.Holder == (driver.Holder{}) {
		res.Holder = holder(q[0], nil)
	}
	return res, nil
}

// sooner adds the TTL of a holder to the time after which it is worth to ask again: the first lease of a semaphore that ends
// may make room, else all have to end.
func sooner(in, ttl time.Duration, m driver.Mode, k kind) time.Duration {
	if k == kindSlot && m == driver.Shared && in > 0 {
		return min(in, ttl)
	}
	return max(in, ttl)
}

// holder describes the owner of a node.
func holder(n node, data []byte) driver.Holder {
	h := driver.Holder{Mode: n.mode(), Owner: n.owner, Foreign: n.foreign(), Limit: n.limit, Slot: n.slot}
	if h.Foreign {
		h.Label = string(data[:min(len(data), driver.MaxLabel)])
	} else {
		h.Label = decode(data).label
	}
	return h
}

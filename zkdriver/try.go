// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// attempt is one Try. It has the owner's entry for itself.
type attempt struct {
	d     *Driver
	ctx   context.Context
	s     *zk.Session
	e     *entry
	r     driver.TryRequest
	start time.Time
	wrote bool // something was sent that the store may have carried out
	moved bool // the node was there before this
	twin  bool // the owner has another node
	bare  bool // the key's directory is absent
	part  bool // the directory is there, without the folder
	sure  bool // what is read has to be as new as now
}

// overtaken bounds how often an attempt looks again because others changed what it had seen.
const overtaken = 64

// Try implements [driver.Driver].
func (d *Driver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	start := time.Now()
	if err := d.valid(r.Check()); err != nil {
		return driver.Result{}, err
	}
	if err := d.can(r); err != nil {
		return driver.Result{}, err
	}
	s, err := d.c.session(ctx)
	if err != nil {
		return driver.Result{}, unsent(err)
	}
	e, err := d.c.lock(ctx, d.place(r.Claim), markOf(r.Claim), d.folders())
	if err != nil {
		return driver.Result{}, driver.NotSent(err)
	}
	defer d.c.unlock(e)
	a := &attempt{d: d, ctx: ctx, s: s, e: e, r: r, start: start}
	res, err := a.try()
	if err != nil && !a.wrote {
		err = unsent(err)
	}
	return res, err
}

// do carries out calls of which some may write.
func (a *attempt) do(calls ...*zk.Call) error {
	err := a.s.Do(a.ctx, calls...)
	if !zk.IsUnsent(err) {
		a.wrote = true
	}
	return err
}

func (a *attempt) path(name string) string { return a.e.dir + "/" + name }

// state is what the entry knows.
func (a *attempt) state() (name string, maybe bool) {
	a.d.c.mu.Lock()
	defer a.d.c.mu.Unlock()
	return a.e.name, a.e.maybe
}

// try asks until what it saw was still true when it decided.
func (a *attempt) try() (driver.Result, error) {
	for range overtaken {
		var res *driver.Result
		var err error
		switch name, maybe := a.state(); {
		case a.d.layout == Semaphore:
			res, err = a.semaphore()
		case a.r.Convert:
			res, err = a.convert()
		case name != "":
			res, err = a.again(name)
		case !a.r.Queue || maybe || a.twin:
			res, err = a.look()
		default:
			res, err = a.join()
		}
		if err != nil {
			return driver.Result{}, err
		}
		if res != nil {
			return *res, nil
		}
	}
	return driver.Result{}, errOvertaken
}

// list reads a key's queue as it is now, or later. An absent directory is an empty queue.
func (a *attempt) list() (queue, error) {
	return a.d.read(a.ctx, a.s, a.e.dir)
}

func absent(err error) bool { return errors.Is(err, zk.ErrNoNode) }

// look reads before it writes: for a request that leaves no trace when it is refused, and for a request that may have a node.
// What it refuses by, and what it misses, it has read after a barrier.
func (a *attempt) look() (*driver.Result, error) {
	k := a.d.kind(a.r.Mode)
	_, sure := a.state()
	for {
		children, tomb := zk.Children(a.e.dir, nil), zk.Exists(a.d.tomb(a.r.Claim))
		calls := []*zk.Call{tomb, children}
		if sure {
			calls = append([]*zk.Call{barrier(a.e.dir)}, calls...)
		}
		if err := a.do(calls...); err != nil {
			return nil, err
		}
		q, err := queueOf(flat, []*zk.Call{children})
		switch {
		case err != nil:
			return nil, err
		case tomb.Err == nil:
			return a.released(q)
		}
		if i := q.of(a.e.mark); i >= 0 {
			return a.standing(q, i)
		}
		if err := a.other(q, k); err != nil {
			return nil, err
		}
		switch free := q.blocker(len(q), k) < 0; {
		case a.r.Queue || free:
			return a.join()
		case sure:
			return a.refuse(q, len(q))
		}
		sure = true
	}
}

// other is the error of a key that is used in a way which this driver does not understand, or does not exclude.
func (a *attempt) other(q queue, k kind) error {
	if n, ok := q.alien(k); ok {
		return &LayoutError{a.path(n.name)}
	}
	return q.newer(a.e.dir)
}

// released is the answer to an owner that was released.
func (a *attempt) released(q queue) (*driver.Result, error) {
	a.d.c.released(a.e)
	res := &driver.Result{Why: driver.Released}
	if len(q) > 0 {
		res.Ahead = q.ahead(len(q))
	}
	return res, nil
}

// join makes a node, and finds out what it is worth.
func (a *attempt) join() (*driver.Result, error) {
	c, k := a.d.c, a.d.kind(a.r.Mode)
	prefix := nameOf(a.e.mark, a.s.ID(), markers[k])
	data := content{ttl: a.r.TTL, label: a.r.Label}.encode()
	node, tomb, children := zk.Create(a.path(prefix), data, c.acl, zk.EphemeralSequential), zk.Exists(a.d.tomb(a.r.Claim)), zk.Children(a.e.dir, nil)
	if made, err := a.create("", node, tomb, children); !made || err != nil {
		return nil, err
	}
	n, _ := parse(node.Path[len(a.e.dir)+1:])
	c.found(a.e, a.s, n, content{ttl: a.r.TTL, fence: fenceOf(node.Stat.Czxid)})
	if tomb.Err == nil {
		if err := a.undo(n); err != nil {
			return nil, err
		}
		return a.released(nil)
	}
	q, err := queueOf(flat, []*zk.Call{children})
	if err != nil {
		return nil, err
	}
	if err := a.other(q, k); err != nil {
		return nil, cmp.Or(a.undo(n), err)
	}
	if i := q.of(a.e.mark); i >= 0 && q[i].name != n.name { // a copy of this request was faster
		a.twin = true
		return nil, a.undo(n)
	}
	return a.decide(q, n.name)
}

// create makes the owner's node in a folder, and reads more. made is false when it was not made, and should be tried again.
func (a *attempt) create(folder string, node *zk.Call, more ...*zk.Call) (made bool, err error) {
	c := a.d.c
	c.begin(a.e, a.s, a.start.Add(a.r.TTL)) // what it turns out to be puts that off
	call := a.d.in(a.e.dir, folder, node, a.bare)
	if a.part {
		call = zk.Multi(zk.Create(a.path(folder), nil, c.acl, zk.Container), node)
	}
	if err := a.do(append([]*zk.Call{call}, more...)...); err != nil {
		if zk.IsUnsent(err) {
			c.forget(a.e, false)
		}
		return false, err
	}
	if call.Err == nil {
		err := a.stat(node)
		if absent(err) { // a copy of this request has made it its own
			c.forget(a.e, false)
			return false, nil
		}
		return err == nil, err
	}
	c.forget(a.e, false)
	switch was, part := a.bare, a.part; {
	case absent(call.Err):
		if a.bare, a.part = true, false; was {
			return false, a.d.make(a.ctx, a.s)
		}
		return false, nil
	case was && errors.Is(call.Err, zk.ErrNodeExists):
		a.bare, a.part = false, folder != ""
		return false, nil
	case part && errors.Is(call.Err, zk.ErrNodeExists):
		a.part = false
		return false, nil
	}
	return false, call.Err
}

// stat finds out when a node was made, which the answer to a multi does not say.
func (a *attempt) stat(node *zk.Call) error {
	if node.Stat.Czxid != 0 {
		return nil
	}
	exists := zk.Exists(node.Path)
	if err := a.do(exists); err != nil {
		return err
	}
	node.Stat = exists.Stat
	return exists.Err
}

// undo deletes a node that was made in vain.
func (a *attempt) undo(n node) error {
	a.d.c.leave(a.e, true)
	del := zk.Delete(a.path(n.name))
	err := a.do(del)
	if err == nil && (del.Err == nil || absent(del.Err)) {
		a.d.c.forget(a.e, false)
		return nil
	}
	a.d.c.leave(a.e, false)
	if err == nil {
		err = del.Err
	}
	return err
}

// decide answers by the queue, in which the owner's node of this session has a name.
func (a *attempt) decide(q queue, name string) (*driver.Result, error) {
	i := q.named(name)
	if i < 0 {
		a.d.c.forget(a.e, true) // it was broken; ask anew
		return nil, nil
	}
	switch {
	case q[i].mode() != a.r.Mode:
		return a.refuse(q, i)
	case q.blocker(i, q[i].kind) < 0:
		return a.grant(q[i])
	case a.r.Queue:
		return a.wait(q, i)
	}
	if name, _ := a.state(); name == q[i].name && !a.waits() {
		if err := a.undo(q[i]); err != nil {
			return nil, err
		}
	}
	return a.refuse(q, i)
}

// waits reports whether the node is a place that an earlier request has taken.
func (a *attempt) waits() bool {
	a.d.c.mu.Lock()
	defer a.d.c.mu.Unlock()
	return a.e.placed
}

// again is for an owner with a known node.
//
// The answer is proven by a write to the node: that the session lives, and that no other client has released this owner, of
// which the server need not know yet. What is read after the write is as new.
func (a *attempt) again(name string) (*driver.Result, error) {
	a.d.c.mu.Lock()
	data := content{ttl: max(a.r.TTL, a.e.ttl), fence: a.e.fence, label: a.r.Label}
	a.d.c.mu.Unlock()
	set, children := zk.Set(a.path(name), data.encode()), zk.Children(a.e.dir, nil)
	if err := a.do(set, children); err != nil {
		return nil, err
	}
	if set.Err != nil && !absent(set.Err) {
		return nil, set.Err
	}
	q, err := queueOf(flat, []*zk.Call{children})
	if err != nil {
		return nil, err
	}
	if q.named(name) < 0 {
		if i := q.of(a.e.mark); i >= 0 {
			return a.standing(q, i)
		}
	}
	return a.decide(q, name)
}

// standing is for an owner that has a node which this entry did not know.
func (a *attempt) standing(q queue, i int) (*driver.Result, error) {
	if q[i].mode() != a.r.Mode {
		return a.refuse(q, i)
	}
	return nil, a.move(q[i], markers[q[i].kind])
}

// move makes an owner's node one of this session, with another marker or the same, the same number and the same fence, in one step.
func (a *attempt) move(n node, marker string) error {
	get := zk.Get(a.path(n.name))
	if err := a.do(get); err != nil || absent(get.Err) {
		return err // overtaken, when it is absent
	} else if get.Err != nil {
		return get.Err
	}
	was := decode(get.Data)
	if was.newer > 0 {
		return newerError(a.path(n.name), was.newer)
	}
	if was.fence == 0 {
		was.fence = fenceOf(get.Stat.Czxid)
	}
	a.moved = true
	to := n
	to.name = numbered(n.sub()+nameOf(a.e.mark, a.s.ID(), marker), n.seq)
	if marker == markers[kindRead] {
		to.kind = kindRead
	}
	data := content{ttl: max(a.r.TTL, was.ttl), fence: was.fence, label: a.r.Label}
	a.d.c.begin(a.e, a.s, a.start.Add(data.ttl)) // what it turns out to be puts that off
	if to.name == n.name && get.Stat.EphemeralOwner == a.s.ID() {
		a.d.c.found(a.e, a.s, to, data)
		return nil
	}
	a.d.c.leave(a.e, true)
	defer a.d.c.leave(a.e, false)
	multi := zk.Multi(zk.Delete(a.path(n.name)), zk.Create(a.path(to.name), data.encode(), a.d.c.acl, zk.Ephemeral))
	if err := a.do(multi); err != nil {
		a.d.c.unnamed(a.e)
		return err
	}
	switch {
	case absent(multi.Err), errors.Is(multi.Err, zk.ErrNodeExists):
		a.d.c.forget(a.e, false)
		return nil // overtaken
	case multi.Err != nil:
		return multi.Err
	}
	a.d.c.found(a.e, a.s, to, data)
	return nil
}

// grant grants the key to this session's node, as far as the session is assured.
func (a *attempt) grant(n node) (*driver.Result, error) {
	a.d.c.mu.Lock()
	name, fence := a.e.name, a.e.fence
	a.d.c.mu.Unlock()
	if over(a.s) {
		return nil, zk.ErrEnded
	}
	if name != n.name {
		return nil, nil // it is gone since: look again
	}
	ttl := min(a.r.TTL, a.s.Assured().Sub(a.start))
	res := &driver.Result{Granted: true, Fence: fence, Fences: 1, TTL: max(ttl, 1), Slot: n.slot}
	if a.d.c.held(a.e, a.d, time.Now().Add(a.r.TTL), a.moved) {
		res.Fences = min(max(a.r.Fences, 1), turns)
	}
	return res, nil
}

// convert makes a writer a reader, with its number, in one step.
func (a *attempt) convert() (*driver.Result, error) {
	q, err := a.list()
	if err != nil {
		return nil, err
	}
	i := q.of(a.e.mark)
	if i < 0 || q.blocker(i, q[i].kind) >= 0 {
		return a.refuse(q, max(i, 0))
	}
	if name, _ := a.state(); q[i].kind == kindRead && name == q[i].name {
		a.r.Convert = false // it stands
		return nil, nil
	}
	if a.r.Fence != 0 {
		get := zk.Get(a.path(q[i].name))
		if err := a.do(get); err != nil || get.Err != nil {
			return nil, errors.Join(err, get.Err)
		}
		if fenceIn(q[i], get) < a.r.Fence {
			return a.refuse(q, i)
		}
	}
	return nil, a.move(q[i], markers[kindRead])
}

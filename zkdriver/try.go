// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// attempt carries out what a recipe.Attempt decides, for an owner whose entry it has for itself.
type attempt struct {
	*recipe.Attempt
	d     *Driver
	ctx   context.Context
	s     *zk.Session
	e     *entry
	r     driver.TryRequest
	start time.Time
	sent  bool // the store may have carried something out
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
	a, err := d.attempt(ctx, s, r, start, false)
	if err != nil {
		return driver.Result{}, driver.NotSent(err)
	}
	defer d.c.unlock(a.e)
	res, err := a.run()
	switch {
	case err != nil && !a.sent:
		return driver.Result{}, unsent(err)
	case err != nil:
		return driver.Result{}, err
	}
	return *res, nil
}

// attempt begins one. The owner's entry is its own until it is unlocked.
func (d *Driver) attempt(ctx context.Context, s *zk.Session, r driver.TryRequest, start time.Time, renews bool) (*attempt, error) {
	e, err := d.c.lock(ctx, d.place(r.Claim), recipe.MarkOf(r.Claim), d.folders())
	if err != nil {
		return nil, err
	}
	m := recipe.NewAttempt(recipe.Layout(d.layout), e.mark, s.ID(), r, renews)
	return &attempt{Attempt: m, d: d, ctx: ctx, s: s, e: e, r: r, start: start}, nil
}

// run asks until what it saw was still true when it decided.
func (a *attempt) run() (*driver.Result, error) {
	for range overtaken {
		for step := a.Begin(a.d.c.record(a.e).Known); step.Do != recipe.Again; {
			next, res, err := a.do(step)
			if err != nil || res != nil {
				return res, err
			}
			step = next
		}
	}
	return nil, errOvertaken
}

// again is the answer to a step that others have overtaken.
var again recipe.Step

// do carries out a step, and returns the next, or how the attempt ends.
func (a *attempt) do(step recipe.Step) (next recipe.Step, res *driver.Result, err error) {
	switch step.Do {
	case recipe.Look:
		if step.Sure {
			next, err = a.look(barrier(a.e.dir))
		} else {
			next, err = a.look()
		}
	case recipe.Prove:
		next, err = a.prove(step)
	case recipe.Join:
		next, err = a.join(step)
	case recipe.MakeRoot:
		err = a.d.make(a.ctx, a.s)
	case recipe.Take:
		next, err = a.take(step)
	case recipe.Find, recipe.Change:
		next, err = a.change(step)
	case recipe.Undo:
		next, err = a.undo(step)
	case recipe.Gone:
		a.d.c.forget(a.e, true)
	case recipe.Keep:
		res, err = a.keep(step.At)
	case recipe.Refuse:
		res, err = a.refuse(step.At)
	case recipe.Grant:
		res, err = a.grant(step.Node)
	case recipe.Released:
		a.d.c.released(a.e)
		res = &driver.Result{Why: driver.WhyReleased, Ahead: a.Ahead(len(a.Queue))}
	case recipe.NotHeld:
		err = driver.ErrNotHeld
	case recipe.Stranger:
		err = stranger(a.e.path(step.Node.Name), step.Node)
	}
	return next, res, err
}

// send carries out calls of which some may write.
func (a *attempt) send(calls ...*zk.Call) error {
	err := a.s.Do(a.ctx, calls...)
	a.sent = a.sent || !zk.IsUnsent(err)
	return err
}

// reading is what an attempt reads of a key: the mark of the owner's release, and the nodes.
type reading struct {
	released *zk.Call
	folders  []string
	lists    []*zk.Call
}

func (a *attempt) reading() reading {
	return reading{zk.Exists(a.d.tomb(a.r.Claim)), a.e.folders, lists(a.e.dir, a.e.folders)}
}

// after are calls, and then those of the reading.
func (r reading) after(calls ...*zk.Call) []*zk.Call {
	return append(append(calls, r.released), r.lists...)
}

func (r reading) view() (v recipe.View, err error) {
	v.Queue, err = queueOf(r.folders, r.lists)
	v.Released, v.Version, v.NoLeases = r.released.Err == nil, r.lists[0].Stat.Version, absent(r.lists[len(r.lists)-1].Err)
	return v, err
}

// look reads, after another call that nothing depends on.
func (a *attempt) look(before ...*zk.Call) (recipe.Step, error) {
	r := a.reading()
	if err := a.send(r.after(before...)...); err != nil {
		return again, err
	}
	v, err := r.view()
	if err != nil {
		return again, err
	}
	return a.Saw(v), nil
}

// prove writes to the owner's node: that shows that the session lives, and that no other client has released this owner, of
// which the server need not know yet. What is read after the write is as new.
func (a *attempt) prove(step recipe.Step) (recipe.Step, error) {
	set := zk.Set(a.e.path(step.Node.Name), step.Data.Encode())
	next, err := a.look(set)
	if err == nil && set.Err != nil && !absent(set.Err) {
		err = set.Err
	}
	return next, err
}

// join makes a node, and finds out what it is worth.
func (a *attempt) join(step recipe.Step) (recipe.Step, error) {
	c, was := a.d.c, a.d.c.record(a.e)
	c.begin(a.e, a.s, a.start.Add(a.r.TTL)) // what it turns out to be puts that off
	prefix := step.Node.Prefix(a.e.mark, a.s.ID())
	node, r := zk.Create(a.e.path(prefix), step.Data.Encode(), c.acl, zk.EphemeralSequential), a.reading()
	create := a.d.in(a.e.dir, node, step.Lacks)
	if err := a.send(r.after(create)...); err != nil {
		if zk.IsUnsent(err) {
			c.unbegin(a.e, was)
		} else {
			c.unname(a.e)
		}
		return again, err
	}
	if create.Err == nil {
		switch err := a.stat(node); {
		case absent(err): // a copy of this request has made it its own
			c.unbegin(a.e, was)
			return again, nil
		case err != nil:
			return again, err
		}
		n, _ := recipe.Parse(strings.TrimPrefix(node.Path, a.e.dir+"/"))
		step.Data.Fence = recipe.FenceOf(node.Stat.Czxid)
		c.found(a.e, a.s, n, step.Data)
		v, err := r.view()
		if err != nil {
			return again, err
		}
		return a.Joined(n, v), nil
	}
	c.unbegin(a.e, was)
	if !absent(create.Err) && (step.Lacks == recipe.LacksNothing || !errors.Is(create.Err, zk.ErrNodeExists)) {
		return again, create.Err
	}
	return a.Unmade(absent(create.Err)), nil
}

// stat finds out when a node was made, which the answer to a multi does not say.
func (a *attempt) stat(node *zk.Call) error {
	if node.Stat.Czxid != 0 {
		return nil
	}
	exists := zk.Exists(node.Path)
	if err := a.send(exists); err != nil {
		return err
	}
	node.Stat = exists.Stat
	return exists.Err
}

// undo deletes a node that was made in vain.
func (a *attempt) undo(step recipe.Step) (recipe.Step, error) {
	a.d.c.leave(a.e)
	del := zk.Delete(a.e.path(step.Node.Name))
	err := a.send(del)
	if err == nil && !absent(del.Err) {
		err = del.Err
	}
	if err != nil {
		a.d.c.stay(a.e)
		return again, err
	}
	a.d.c.released(a.e)
	return a.Undone(), nil
}

// take reads a node that is to become this session's.
func (a *attempt) take(step recipe.Step) (recipe.Step, error) {
	get := zk.Get(a.e.path(step.Node.Name))
	if err := a.send(get); err != nil || absent(get.Err) {
		return again, err
	} else if get.Err != nil {
		return again, get.Err
	}
	return a.Read(recipe.Decode(get.Data), get.Stat.EphemeralOwner, get.Stat.Czxid), nil
}

// change replaces a node by another of this session, in one step, so that no owner gets in between.
func (a *attempt) change(step recipe.Step) (recipe.Step, error) {
	c, was := a.d.c, a.d.c.record(a.e)
	if step.Node.Name != was.Name {
		c.begin(a.e, a.s, a.start.Add(step.Data.TTL)) // what it turns out to be puts that off
	}
	if step.Do == recipe.Find {
		c.found(a.e, a.s, step.Node, step.Data)
		return again, nil
	}
	multi, made := a.multi(step), zk.Exists(a.e.path(step.To.Name))
	c.leave(a.e)
	defer c.stay(a.e)
	if err := a.send(multi, made); err != nil {
		c.unname(a.e)
		return again, err
	}
	switch {
	case absent(multi.Err), errors.Is(multi.Err, zk.ErrBadVersion), errors.Is(multi.Err, zk.ErrNodeExists): // overtaken
		if step.Node.Name != was.Name {
			c.unbegin(a.e, was)
		}
		return again, nil
	case multi.Err != nil:
		return again, multi.Err
	case made.Err != nil: // it was broken at once
		c.unname(a.e)
		return again, nil
	case step.Data.Fence == 0:
		step.Data.Fence = recipe.FenceOf(made.Stat.Czxid)
	}
	c.found(a.e, a.s, step.To, step.Data)
	return a.Changed(), nil
}

// multi is the transaction of a change.
func (a *attempt) multi(step recipe.Step) *zk.Call {
	from, to := step.Node, step.To
	parts := []*zk.Call{zk.Delete(a.e.path(from.Name)), zk.Create(a.e.path(to.Name), step.Data.Encode(), a.d.c.acl, zk.Ephemeral)}
	if from.Kind != to.Kind && a.d.layout == Semaphore {
		parts = append([]*zk.Call{zk.SetVersion(a.e.path(recipe.Locks), nil, a.Version)}, parts...)
		if a.NoLeases && to.Kind == recipe.Slot {
			parts = append([]*zk.Call{zk.Create(a.e.path(recipe.Leases), nil, a.d.c.acl, zk.Container)}, parts...)
		}
	}
	if step.Guard != "" {
		parts = append(parts, zk.Check(a.e.path(step.Guard)))
	}
	return zk.Multi(parts...)
}

// grant grants the key to this session's node, as far as the session is assured.
func (a *attempt) grant(n recipe.Node) (*driver.Result, error) {
	now := a.d.c.record(a.e)
	if a.s.Ended() {
		return nil, zk.ErrEnded
	}
	if now.Name != n.Name {
		return nil, nil // it is gone since: look again
	}
	ttl := min(a.r.TTL, a.s.Assured().Sub(a.start))
	res := &driver.Result{Granted: true, Fence: now.Fence, Fences: 1, TTL: max(ttl, 1), Slot: n.Slot}
	first, handed := a.d.c.held(a.e, a.d, time.Now().Add(a.r.TTL), a.Stood())
	if first {
		res.Fences = min(max(a.r.Fences, 1), recipe.Fences)
	}
	if !handed.IsZero() {
		res.Handoff = max(time.Since(handed), 1)
	}
	return res, nil
}

// keep keeps the place at i, and watches for the end of the node that it waits for.
func (a *attempt) keep(i int) (*driver.Result, error) {
	c, before := a.d.c, strings.Clone(a.Before(i))
	w := &zk.Watch{}
	w.Fire = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if a.e.watch == w {
			a.e.watch, a.e.watched = nil, ""
			a.d.wake(a.e, a.s)
		}
	}
	c.mu.Lock()
	watched := a.e.watch != nil && a.e.watched == before
	if a.e.Live() {
		a.e.Keep(time.Now().Add(a.r.Patience))
		a.e.enters = a.r.Enters && a.r.Mode == driver.Exclusive && a.d.hands()
		c.arm(a.e)
		if !watched {
			c.unwatch(a.e)
			a.e.watch, a.e.watched = w, before
		}
	}
	c.mu.Unlock()
	if watched {
		return a.refuse(i)
	}
	watch, gets := zk.Children(a.e.path(before), w), a.holders(i)
	err := a.send(append([]*zk.Call{watch}, gets...)...)
	if err == nil && watch.Err == nil && (before != recipe.Leases || a.Same(watch.Children)) {
		return a.refused(i, gets)
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

// looks is of how many nodes a refusal reads the data at most: of all that hold the key, when the next turn is ours, else of the first.
const looks = 64

// holders reads the nodes that are in the way of the node at i.
func (a *attempt) holders(i int) []*zk.Call {
	n := min(1, i)
	if a.Ahead(i) == 0 {
		n = min(a.Holders(), looks)
	}
	return gets(a.e.dir, a.Queue[:n])
}

// refuse says what is in the way of the node at i, or of a node behind all of them.
func (a *attempt) refuse(i int) (*driver.Result, error) {
	gets := a.holders(i)
	if err := a.send(gets...); err != nil {
		return nil, err
	}
	return a.refused(i, gets)
}

// refused is refuse with what holders has read. It is nil when the node at i may be next by now, and has to look
// again. A node with others before it need not: where many wait, the holder has often released the key in the meantime,
// and the next in order has it.
func (a *attempt) refused(i int, gets []*zk.Call) (*driver.Result, error) {
	q, res := a.Queue, &driver.Result{Why: driver.WhyHeld, Ahead: a.Ahead(i)}
	if own := a.d.c.record(a.e); a.r.Enters && own.Fence > 0 { // handovers of a node from before this one do not count
		res.At, res.Fence = a.d.c.clock(a.start), own.Fence-recipe.Fences
	}
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
	}
	if res.Ahead == 0 {
		res.RetryIn = retryIn(a.r.Mode, q, gets)
	}
	if len(q) > 0 && res.Holder == (driver.Holder{}) {
		res.Holder = holder(q[0], nil)
	}
	return res, nil
}

// retryIn is the time after which it is worth to ask again, by the TTLs of those that hold the key: the first lease of a semaphore that
// ends may make room, else all have to end.
func retryIn(m driver.Mode, q recipe.Queue, gets []*zk.Call) (in time.Duration) {
	for i, get := range gets {
		if get.Err != nil || q[i].Foreign() {
			continue
		}
		ttl := recipe.Decode(get.Data).TTL
		if q[i].Kind == recipe.Slot && m == driver.Shared && in > 0 {
			in = min(in, ttl)
		} else {
			in = max(in, ttl)
		}
	}
	return in
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// renewal is one request of a Renew, with what this session has of its owner, and what was read of that.
type renewal struct {
	i    int
	r    driver.RenewRequest
	e    *entry
	name string         // of the node, "" when this session has none
	data recipe.Content // to be written, unless its TTL is 0

	node  *zk.Call
	lists []*zk.Call
}

// Renew implements [driver.Driver]. One write proves that the session lives; what is read after it shows
// the nodes that it has.
func (d *Driver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	start := time.Now()
	s, errSession := (*zk.Session)(nil), d.bad
	if errSession == nil {
		d.c.zk.Bear(d.c.shortest())
		s, errSession = d.c.session(ctx)
	}
	var ours, others []renewal
	for i, r := range rs {
		n, err := renewal{i: i, r: r}, errSession
		if err == nil {
			err = d.valid(r.Check())
		}
		if err == nil {
			err = d.c.sign(s, &n, d.place(r.Claim), start)
		}
		switch {
		case err != nil:
			done(i, driver.Renewal{Err: err})
		case n.name == "":
			others = append(others, n)
		default:
			ours = append(ours, n)
		}
	}
	if len(ours) > 0 && ours[0].data.TTL == 0 {
		known := d.c.record(ours[0].e)
		ours[0].data = recipe.Content{TTL: known.TTL, Fence: known.Fence, Label: ours[0].r.Label}
	}
	for part := range slices.Chunk(ours, together) {
		others = append(others, d.renewSome(ctx, s, start, part, done)...)
	}
	for _, n := range others {
		done(n.i, d.takeOver(ctx, s, start, n.r))
	}
}

// sign puts off that a lease or a place of this session is given up, and adds what is known of it. ErrNotHeld: the owner has a place, and
// not the lease that this is about, or the other way round.
func (c *Conn) sign(s *zk.Session, n *renewal, p place, start time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[p]
	if e == nil || e.Name == "" || e.sess != s || e.State == recipe.Made && !n.r.Queue {
		return nil // takeOver finds out, also what an answer that was lost has not said
	}
	until := start.Add(n.r.TTL)
	if n.r.Queue {
		until = start.Add(n.r.Patience)
	} else if n.r.TTL > e.TTL {
		n.data = recipe.Content{TTL: n.r.TTL, Fence: e.Fence, Label: n.r.Label}
	}
	if !e.Sign(n.r.Queue, until) {
		return driver.ErrNotHeld
	}
	c.arm(e)
	n.e, n.name = e, e.Name
	return nil
}

// renewSome renews what this session has, and returns what it does not have any more. The first part of a Renew writes, and
// what is read after that is as new.
func (d *Driver) renewSome(ctx context.Context, s *zk.Session, start time.Time, ns []renewal, done func(int, driver.Renewal)) (gone []renewal) {
	var sets, reads []*zk.Call
	for i := range ns {
		n := &ns[i]
		n.lists = lists(n.e.dir, n.e.folders)
		if path := n.e.path(n.name); n.data.TTL > 0 {
			n.node = zk.Set(path, n.data.Encode())
			sets = append(sets, n.node)
		} else {
			n.node = zk.Exists(path)
			reads = append(reads, n.node)
		}
		reads = append(reads, n.lists...)
	}
	if err := s.Do(ctx, append(sets, reads...)...); err != nil {
		for _, n := range ns {
			done(n.i, driver.Renewal{Err: err})
		}
		return nil
	}
	for _, n := range ns {
		switch {
		case absent(n.node.Err):
			gone = append(gone, n)
		case n.node.Err != nil:
			done(n.i, driver.Renewal{Err: n.node.Err})
		case n.node.Stat.EphemeralOwner != s.ID(): // it was made anew, and no session ends it
			d.c.unname(n.e)
			gone = append(gone, n)
		case n.r.Queue:
			done(n.i, d.turn(ctx, s, n))
		default:
			done(n.i, d.lease(s, start, n))
		}
	}
	return gone
}

// lease is what the owner of a lease that stands learns. Where the waiters cannot be read, there are none.
func (d *Driver) lease(s *zk.Session, start time.Time, n renewal) driver.Renewal {
	assured := s.Assured().Sub(start)
	if assured <= 0 || s.Ended() {
		return driver.Renewal{Err: zk.ErrEnded}
	}
	d.c.note(n.e, func(r *recipe.Record) {
		r.Renewed(n.name, time.Now().Add(n.r.TTL), n.data.TTL)
		d.c.attend(n.e) // a lease that was handed over is not yet
	})
	q, err := queueOf(n.e.folders, n.lists)
	return driver.Renewal{TTL: min(n.r.TTL, assured), Wanted: err == nil && len(q) > q.Holders()}
}

// turn is what the owner of a place that stands learns: whether its turn has come, or when it may.
func (d *Driver) turn(ctx context.Context, s *zk.Session, n renewal) driver.Renewal {
	q, err := queueOf(n.e.folders, n.lists)
	i := q.Named(n.name)
	switch {
	case err != nil:
		return driver.Renewal{Err: err}
	case i < 0 || q.Turn(i):
		return driver.Renewal{Err: driver.ErrNotHeld}
	case q.Ahead(i) > 0:
		return driver.Renewal{}
	}
	calls := gets(n.e.dir, q[:min(q.Holders(), looks)])
	if err := s.Do(ctx, calls...); err != nil {
		return driver.Renewal{Err: err}
	}
	return driver.Renewal{RetryIn: retryIn(q[i].Mode(), q, calls)}
}

// takeOver renews what this session does not have: it makes another's node of the same owner its own.
func (d *Driver) takeOver(ctx context.Context, s *zk.Session, start time.Time, r driver.RenewRequest) driver.Renewal {
	t := driver.TryRequest{Claim: r.Claim, TTL: max(r.TTL, 1), Patience: r.Patience, Queue: r.Queue}
	a, err := d.attempt(ctx, s, t, start, true)
	if err != nil {
		return driver.Renewal{Err: err}
	}
	defer d.c.unlock(a.e)
	switch res, err := a.run(); {
	case err != nil:
		return driver.Renewal{Err: err}
	case res.Why == driver.WhyReleased:
		return driver.Renewal{Err: driver.ErrNotHeld}
	case res.Granted:
		return driver.Renewal{TTL: res.TTL, Wanted: len(a.Queue) > a.Holders()}
	default:
		return driver.Renewal{RetryIn: res.RetryIn}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// renewal is one request of a Renew, with what this session has of its owner.
type renewal struct {
	i    int
	r    driver.RenewRequest
	e    *entry
	name string // of the node, "" when this session has none
	kind recipe.Kind
	data recipe.Content // to be written, when the TTL is larger than before

	other bool // the owner has a place, and not the lease that this is about, or the other way round
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
	var leases, places, others []renewal
	for i, r := range rs {
		err := errSession
		if err == nil {
			err = d.valid(r.Check())
		}
		if err != nil {
			done(i, driver.Renewal{Err: err})
			continue
		}
		switch n := d.c.sign(s, renewal{i: i, r: r}, d.place(r.Claim), start); {
		case n.other:
			done(i, driver.Renewal{Err: driver.ErrNotHeld})
		case n.name == "":
			others = append(others, n)
		case r.Queue:
			places = append(places, n)
		default:
			leases = append(leases, n)
		}
	}
	proven := false
	for part := range slices.Chunk(leases, together) {
		others = append(others, d.renewLeases(ctx, s, start, part, &proven, done)...)
	}
	for part := range slices.Chunk(places, together) {
		others = append(others, d.renewPlaces(ctx, s, part, &proven, done)...)
	}
	for _, n := range others {
		done(n.i, d.takeOver(ctx, s, start, n.r))
	}
}

// sign puts off that a lease or a place of this session is given up, and returns what is known of it.
func (c *Conn) sign(s *zk.Session, n renewal, p place, start time.Time) renewal {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[p]
	if e == nil || e.Name == "" || e.sess != s {
		return n
	}
	until := start.Add(n.r.TTL)
	if n.r.Queue {
		until = start.Add(n.r.Patience)
	} else if n.r.TTL > e.TTL {
		n.data = recipe.Content{TTL: n.r.TTL, Fence: e.Fence, Label: n.r.Label}
	}
	if n.other = !e.Sign(n.r.Queue, until); n.other {
		return n
	}
	c.arm(e)
	n.e, n.name, n.kind = e, e.Name, e.Kind
	return n
}

// renewLeases renews leases of this session, and returns those that it does not have any more.
func (d *Driver) renewLeases(ctx context.Context, s *zk.Session, start time.Time, ns []renewal, proven *bool, done func(int, driver.Renewal)) (gone []renewal) {
	var nodes, dirs []*zk.Call
	for _, n := range ns {
		path := n.e.path(n.name)
		call := zk.Exists(path)
		if n.data.TTL > 0 {
			call = zk.Set(path, n.data.Encode())
			*proven = true
		}
		nodes, dirs = append(nodes, call), append(dirs, zk.Exists(strings.TrimSuffix(n.e.path(d.folders()[0]), "/")))
	}
	if !*proven {
		known := d.c.record(ns[0].e)
		data := recipe.Content{TTL: known.TTL, Fence: known.Fence, Label: ns[0].r.Label}
		nodes[0] = zk.Set(ns[0].e.path(ns[0].name), data.Encode())
		*proven = true
	}
	if err := s.Do(ctx, append(nodes, dirs...)...); err != nil {
		for _, n := range ns {
			done(n.i, driver.Renewal{Err: err})
		}
		return nil
	}
	assured := s.Assured().Sub(start)
	wanted := d.wanted(ctx, s, ns, dirs)
	for i, n := range ns {
		switch err := nodes[i].Err; {
		case absent(err):
			gone = append(gone, n)
		case err != nil:
			done(n.i, driver.Renewal{Err: err})
		case nodes[i].Stat.EphemeralOwner != s.ID(): // it was made anew, and no session ends it
			d.c.unname(n.e)
			gone = append(gone, n)
		case assured <= 0 || s.Ended():
			done(n.i, driver.Renewal{Err: zk.ErrEnded})
		default:
			d.c.note(n.e, func(r *recipe.Record) { r.Renewed(n.name, time.Now().Add(n.r.TTL), n.data.TTL) })
			done(n.i, driver.Renewal{TTL: min(n.r.TTL, assured), Wanted: wanted[i]})
		}
	}
	return gone
}

// wanted reports which keys have waiters. dirs says how many nodes are where waiters are; of a shared key it does not say
// which of them hold it. What cannot be read is not wanted.
func (d *Driver) wanted(ctx context.Context, s *zk.Session, ns []renewal, dirs []*zk.Call) map[int]bool {
	wanted := make(map[int]bool)
	var some []int
	var calls []*zk.Call
	for i, n := range ns {
		more := dirs[i].Err == nil && (dirs[i].Stat.NumChildren > 1 || n.kind == recipe.Slot && dirs[i].Stat.NumChildren > 0)
		if wanted[i] = more; more && n.kind == recipe.Read {
			some, calls = append(some, i), append(calls, zk.Children(n.e.dir, nil))
		}
	}
	err := s.Do(ctx, calls...)
	for j, i := range some {
		var q recipe.Queue
		if err == nil {
			q, _ = queueOf(ns[i].e.folders, calls[j:j+1])
		}
		wanted[i] = len(q) > q.Holders()
	}
	return wanted
}

// renewPlaces tells owners about their places, and returns those that this session does not have.
func (d *Driver) renewPlaces(ctx context.Context, s *zk.Session, ns []renewal, proven *bool, done func(int, driver.Renewal)) (gone []renewal) {
	var calls []*zk.Call
	if !*proven {
		calls, *proven = append(calls, barrier(ns[0].e.dir)), true
	}
	first, each := len(calls), len(d.folders())
	for _, n := range ns {
		calls = append(calls, lists(n.e.dir, d.folders())...)
	}
	err := s.Do(ctx, calls...)
	for i, n := range ns {
		var q recipe.Queue
		if err == nil {
			q, err = queueOf(d.folders(), calls[first+i*each:][:each])
		}
		if err != nil {
			done(n.i, driver.Renewal{Err: err})
			continue
		}
		if at := q.Named(n.name); at < 0 {
			gone = append(gone, n)
		} else {
			done(n.i, d.turn(ctx, s, n.e.dir, q, at))
		}
	}
	return gone
}

// turn is what the owner of the place at i learns: whether its turn has come, or when it may.
func (d *Driver) turn(ctx context.Context, s *zk.Session, dir string, q recipe.Queue, i int) driver.Renewal {
	switch {
	case q.Turn(i):
		return driver.Renewal{Err: driver.ErrNotHeld}
	case q.Ahead(i) > 0:
		return driver.Renewal{}
	}
	calls := gets(dir, q[:min(q.Holders(), looks)])
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
	case res.Why == driver.Released:
		return driver.Renewal{Err: driver.ErrNotHeld}
	case res.Granted:
		return driver.Renewal{TTL: res.TTL, Wanted: len(a.Queue) > a.Holders()}
	default:
		return driver.Renewal{RetryIn: res.RetryIn}
	}
}

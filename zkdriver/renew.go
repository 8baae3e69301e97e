// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// renewal is one request of a Renew, with what this session has of its owner.
type renewal struct {
	i    int
	r    driver.RenewRequest
	e    *entry
	name string // of the node, "" when this session has none
	kind kind
	data content // to be written, when the TTL is larger than before

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
	for part := range chunks(leases) {
		others = append(others, d.renewLeases(ctx, s, start, part, &proven, done)...)
	}
	for part := range chunks(places) {
		others = append(others, d.renewPlaces(ctx, s, part, &proven, done)...)
	}
	for _, n := range others {
		done(n.i, d.takeOver(ctx, s, start, n.r))
	}
}

// chunks are parts of at most as many as are sent together.
func chunks(all []renewal) func(yield func([]renewal) bool) {
	return func(yield func([]renewal) bool) {
		for len(all) > 0 {
			n := min(len(all), together)
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// sign puts off that a lease or a place of this session is given up, and returns what is known of it.
func (c *Conn) sign(s *zk.Session, n renewal, p place, start time.Time) renewal {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[p]
	if e == nil || e.name == "" || e.sess != s {
		return n
	}
	if n.other = e.gone || e.granted == n.r.Queue; n.other {
		return n
	}
	until := start.Add(n.r.Patience)
	if !n.r.Queue {
		until = start.Add(n.r.TTL)
		if n.r.TTL > e.ttl {
			n.data = content{ttl: n.r.TTL, fence: e.fence, label: n.r.Label}
		}
	}
	if until.After(e.until) {
		c.last(e, until)
	}
	n.e, n.name, n.kind = e, e.name, e.kind
	return n
}

// renewLeases renews leases of this session, and returns those that it does not have any more.
func (d *Driver) renewLeases(ctx context.Context, s *zk.Session, start time.Time, ns []renewal, proven *bool, done func(int, driver.Renewal)) (gone []renewal) {
	var nodes, dirs []*zk.Call
	for _, n := range ns {
		path := n.e.dir + "/" + n.name
		call := zk.Exists(path)
		if n.data.ttl > 0 {
			call = zk.Set(path, n.data.encode())
			*proven = true
		}
		nodes, dirs = append(nodes, call), append(dirs, zk.Exists(d.waitsIn(n.e.dir)))
	}
	if !*proven {
		d.c.mu.Lock()
		data := content{ttl: ns[0].e.ttl, fence: ns[0].e.fence, label: ns[0].r.Label}
		d.c.mu.Unlock()
		nodes[0] = zk.Set(ns[0].e.dir+"/"+ns[0].name, data.encode())
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
			d.c.unnamed(n.e)
			gone = append(gone, n)
		case assured <= 0 || over(s):
			done(n.i, driver.Renewal{Err: zk.ErrEnded})
		default:
			if n.data.ttl > 0 {
				d.c.wrote(n.e, n.name, n.data.ttl)
			}
			d.c.lasts(n.e, n.name, time.Now().Add(n.r.TTL))
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
		more := dirs[i].Err == nil && (dirs[i].Stat.NumChildren > 1 || n.kind == kindSlot && dirs[i].Stat.NumChildren > 0)
		if wanted[i] = more; more && n.kind == kindRead {
			some, calls = append(some, i), append(calls, zk.Children(n.e.dir, nil))
		}
	}
	err := s.Do(ctx, calls...)
	for j, i := range some {
		var q queue
		if err == nil {
			q, _ = queueOf(flat, calls[j:j+1])
		}
		wanted[i] = len(q) > q.holders()
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
		var q queue
		if err == nil {
			q, err = queueOf(d.folders(), calls[first+i*each:][:each])
		}
		if err != nil {
			done(n.i, driver.Renewal{Err: err})
			continue
		}
		if at := q.named(n.name); at < 0 {
			gone = append(gone, n)
		} else {
			done(n.i, d.turn(ctx, s, n.e.dir, q, at))
		}
	}
	return gone
}

// turn is what the owner of the place at i learns: whether its turn has come, or when it may.
func (d *Driver) turn(ctx context.Context, s *zk.Session, dir string, q queue, i int) driver.Renewal {
	if q.holds(i) || q[i].kind == kindWait && q.room(i, q[i].want) {
		return driver.Renewal{Err: driver.ErrNotHeld}
	}
	if q.ahead(i) > 0 {
		return driver.Renewal{}
	}
	var gets []*zk.Call
	for _, h := range q[:min(q.holders(), looks)] {
		gets = append(gets, zk.Get(dir+"/"+h.name))
	}
	if err := s.Do(ctx, gets...); err != nil {
		return driver.Renewal{Err: err}
	}
	var in time.Duration
	for j, get := range gets {
		if get.Err == nil && !q[j].foreign() {
			in = sooner(in, decode(get.Data).ttl, q[i].mode(), q[j].kind)
		}
	}
	return driver.Renewal{RetryIn: in}
}

// takeOver renews what this session does not have: it makes another's node of the same owner its own.
func (d *Driver) takeOver(ctx context.Context, s *zk.Session, start time.Time, r driver.RenewRequest) driver.Renewal {
	e, err := d.c.lock(ctx, d.place(r.Claim), markOf(r.Claim), d.folders())
	if err != nil {
		return driver.Renewal{Err: err}
	}
	defer d.c.unlock(e)
	t := driver.TryRequest{Claim: r.Claim, TTL: max(r.TTL, 1), Patience: r.Patience, Queue: r.Queue}
	a := &attempt{d: d, ctx: ctx, s: s, e: e, r: t, start: start}
	for range overtaken {
		q, err := a.list()
		if err != nil {
			return driver.Renewal{Err: err}
		}
		i := q.of(e.mark)
		if i < 0 || q.holds(i) == r.Queue {
			return driver.Renewal{Err: driver.ErrNotHeld}
		}
		if name, _ := a.state(); name != q[i].name {
			if err := a.move(q[i], q[i].marker()); err != nil {
				return driver.Renewal{Err: err}
			}
			continue
		}
		if r.Queue {
			if err := a.keep(q, i); err != nil {
				return driver.Renewal{Err: err}
			}
			return d.turn(ctx, s, e.dir, q, i)
		}
		a.r.Mode = q[i].mode()
		res, err := a.stands(q, i)
		if err != nil {
			return driver.Renewal{Err: err}
		}
		if res != nil && res.Granted {
			return driver.Renewal{TTL: res.TTL, Wanted: len(q) > q.holders()}
		}
	}
	return driver.Renewal{Err: errOvertaken}
}

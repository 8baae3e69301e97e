// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// grantLimit bounds a LeaseGrant, which may outlive the request that began it: others
	// wait for the same one.
	grantLimit = 10 * time.Second
	// maxTTL is a little less than the longest lease of etcd.
	maxTTL = 8_900_000_000 * time.Second
	// tombTTL is how long a released owner is remembered: no request is under way for longer.
	tombTTL = driver.MaxTransit
	// memory is the least time for which the mark of a holder outlives its lease.
	memory = 15 * time.Minute
)

// lease is a lease of etcd. The driver's mu guards it.
type lease struct {
	id    clientv3.LeaseID
	asked time.Duration // the TTL that etcd was asked for
	ttl   time.Duration // the TTL that it granted
	sent  time.Time     // when the request was begun from which ttl counts

	members int  // how many owners have their keys on it, or may have them soon
	strange bool // a request without an answer may have put a key on it
	alone   bool // it was kept alive, so it takes no newcomers
}

// left is how long a lease lasts from an instant on, at least. A lease is used for some time
// after it was granted, so drift between the clocks is allowed for.
func (l *lease) left(now time.Time) time.Duration {
	passed := max(elapsed(l.sent, now), 0)
	return l.ttl - passed - passed/100
}

// elapsed is the larger of what two clocks show: the monotonic clock of Go stands still while
// the machine sleeps, and the wall clock may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// seconds rounds a TTL up to whole ones, as etcd counts them.
func seconds(ttl time.Duration) time.Duration {
	if ttl >= maxTTL {
		return maxTTL
	}
	return (ttl + time.Second - 1).Truncate(time.Second)
}

// window is how much longer than asked for a lease lasts that newcomers share: for so long
// after its grant it is good for them.
const window = time.Second

// markTTL is how long the lease of a mark lasts for a lease of ttl: a power of two in hours, at
// least half an hour and an eighth longer than both.
func markTTL(ttl time.Duration) time.Duration {
	m := 2 * time.Hour
	for m < maxTTL/2 && m < ttl+ttl/8+time.Hour {
		m *= 2
	}
	if m < ttl+time.Hour {
		return maxTTL + time.Hour
	}
	return m
}

// pool names the leases that newcomers share.
type pool struct {
	ttl   time.Duration
	fixed bool // they are never kept alive: those of marks and of released owners
}

// pooled is the lease of a pool.
type pooled struct {
	lease    *lease
	granting chan struct{} // closed when the LeaseGrant under way has ended; nil: there is none
	err      error         // how the last one ended
}

// borrow returns a lease that lasts for need from the start of this call on, and counts one more
// member. Newcomers share leases: a Try then costs no LeaseGrant, but one for each window.
func (d *Driver) borrow(ctx context.Context, from pool, need time.Duration) (*lease, error) {
	asked, began := false, time.Now()
	for {
		d.mu.Lock()
		p := d.pool[from]
		if p == nil {
			p = &pooled{}
			d.pool[from] = p
		}
		if l := p.lease; l != nil && !l.alone && (l.left(time.Now()) >= need || l.sent.After(began)) {
			l.members++
			d.mu.Unlock()
			return l, nil
		}
		if asked && p.granting == nil && p.err != nil {
			err := p.err
			d.mu.Unlock()
			return nil, err
		}
		wait := p.granting
		if wait == nil {
			wait = d.refill(p, from)
		}
		d.mu.Unlock()
		asked = true
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-d.life.Done():
			return nil, d.life.Err()
		}
	}
}

// lend returns a lease for the key of a newcomer, or of a waiter.
func (d *Driver) lend(ctx context.Context, ttl time.Duration) (*lease, error) {
	ttl = min(ttl, maxTTL)
	return d.borrow(ctx, pool{ttl: seconds(ttl) + window}, ttl)
}

// lendFixed returns a lease of ttl that lasts for need and is never kept alive, so that its
// members need no count.
func (d *Driver) lendFixed(ctx context.Context, ttl, need time.Duration) (*lease, error) {
	l, err := d.borrow(ctx, pool{ttl, true}, need)
	d.giveBack(l, false)
	return l, err
}

// lendMark returns a lease for the mark of a holder.
func (d *Driver) lendMark(ctx context.Context, ttl time.Duration) (*lease, error) {
	ttl = min(ttl, maxTTL)
	return d.lendFixed(ctx, markTTL(ttl), ttl+2*memory)
}

// refill begins to get a lease for newcomers: the last one, if no owner is on it any more, which costs
// etcd no write, or a new one. d.mu is held.
func (d *Driver) refill(p *pooled, from pool) chan struct{} {
	ended := make(chan struct{})
	p.granting, p.err = ended, nil
	last := p.lease
	if from.fixed || last != nil && (last.members > 0 || last.strange || last.alone) {
		last = nil
	}
	d.goes(func() {
		ctx, cancel := context.WithTimeout(d.life, grantLimit)
		defer cancel()
		l, err := last, error(nil)
		if !d.again(ctx, last) {
			l, err = d.grant(ctx, from.ttl)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.sweep(time.Now())
		p.granting, p.err = nil, err
		if err == nil {
			p.lease = l
		}
		close(ended)
	})
	return ended
}

// again keeps a lease without owners alive, and reports whether it is as good as a new one.
func (d *Driver) again(ctx context.Context, l *lease) bool {
	began := time.Now()
	if l == nil || d.keepAlive(ctx, l) != nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leases[l.id] = l // a sweep may have taken it for over
	return !l.alone && !l.sent.Before(began)
}

// grant asks etcd for a lease.
func (d *Driver) grant(ctx context.Context, ttl time.Duration) (*lease, error) {
	sent := time.Now()
	var res *clientv3.LeaseGrantResponse
	err := led(ctx, func(ctx context.Context) (err error) {
		res, err = d.client.Grant(ctx, int64(ttl/time.Second))
		return err
	})
	if err != nil {
		return nil, err
	}
	l := &lease{id: res.ID, asked: ttl, ttl: time.Duration(res.TTL) * time.Second, sent: sent}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep(sent)
	d.leases[l.id] = l
	return l, nil
}

// sweep forgets what has expired, and what was long ago. A record that does stand is found again by a
// Renew. d.mu is held.
func (d *Driver) sweep(now time.Time) {
	for id, r := range d.records {
		if r.on.left(now) < -time.Minute {
			r.on.strange = true // a new leader may have begun it anew, so the key may be there
			d.forget(id)
		}
	}
	for id, l := range d.leases {
		if l.members == 0 && l.left(now) < -time.Minute {
			delete(d.leases, id)
		}
	}
	for key, at := range d.refused {
		if now.Sub(at) > crowded {
			delete(d.refused, key)
		}
	}
}

// giveBack ends a membership that no key came of. unknown: one may have.
func (d *Driver) giveBack(l *lease, unknown bool) {
	if l == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.members--
	l.strange = l.strange || unknown
}

// expired forgets a lease that etcd does not know, so that it is not borrowed again.
func (d *Driver) expired(ls ...*lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range ls {
		if l != nil {
			l.alone, l.ttl = true, min(l.ttl, 0)
		}
	}
}

// forget drops what is known of an owner. d.mu is held.
func (d *Driver) forget(id driver.ID) {
	if r := d.records[id]; r != nil {
		r.on.members--
		d.unguard(r)
		delete(d.records, id)
	}
}

// known returns a copy of what is known of an owner.
func (d *Driver) known(id driver.ID) (r record, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.records[id]; known != nil {
		return *known, true
	}
	return r, false
}

// remaining is how long a lease of etcd lasts from an instant before this call on, at least;
// of another's in whole seconds, 0 when it has expired.
func (d *Driver) remaining(ctx context.Context, id clientv3.LeaseID, from time.Time) (time.Duration, error) {
	d.mu.Lock()
	if l := d.leases[id]; l != nil {
		defer d.mu.Unlock()
		return l.left(from), nil
	}
	d.mu.Unlock()
	res, err := d.client.TimeToLive(clientv3.WithRequireLeader(ctx), id)
	if err != nil {
		return 0, err
	}
	return time.Duration(max(res.TTL, 0)) * time.Second, nil
}

// keepAlive prolongs a lease. etcd may answer for a lease that it has just revoked, so
// that the keys on it are to be looked at afterwards.
func (d *Driver) keepAlive(ctx context.Context, l *lease) error {
	sent := time.Now()
	var res *pb.LeaseKeepAliveResponse
	err := led(ctx, func(ctx context.Context) (err error) {
		res, err = d.keepAliveOnce(ctx, l.id)
		return err
	})
	switch {
	case err != nil:
		return err
	case res.TTL <= 0:
		return rpctypes.ErrLeaseNotFound
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ttl := time.Duration(res.TTL) * time.Second; ttl >= l.ttl && sent.After(l.sent) {
		l.sent = sent
	}
	return nil
}

// leaderless bounds how many members without a leader are asked one after another.
const leaderless = 3

// led sends a request to a member that has a leader. One without refuses it unread, so that
// another may be asked at once; the client goes from one to the next.
func led(ctx context.Context, send func(context.Context) error) (err error) {
	ctx = clientv3.WithRequireLeader(ctx)
	for range leaderless {
		if err = send(ctx); !errors.Is(err, rpctypes.ErrNoLeader) {
			break
		}
	}
	return err
}

// commit carries out a transaction.
func (d *Driver) commit(ctx context.Context, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (res *clientv3.TxnResponse, err error) {
	err = led(ctx, func(ctx context.Context) error {
		got, err := d.client.Do(ctx, clientv3.OpTxn(cmps, then, otherwise))
		res = got.Txn()
		return err
	})
	return res, err
}

// record is what this driver knows of an owner's key in etcd. The driver's mu guards it.
type record struct {
	own  entry  // as it was seen last
	on   *lease // its key is on it; the record is a member
	mark *lease // its mark is on it; nil: it has none
	// unsure: a request to put the key on another lease had no answer, and may still come.
	unsure bool
	guard  context.CancelFunc // ends the watch of the own key; nil: there is none
}

// remember replaces what is known of an owner. The caller has counted the record among the
// members of r.on.
func (d *Driver) remember(id driver.ID, r *record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replace(id, r)
}

// replace is remember with d.mu held.
func (d *Driver) replace(id driver.ID, r *record) {
	if old := d.records[id]; old != nil {
		old.on.members--
		r.guard = old.guard
		if old.own.class != r.own.class {
			d.unguard(r) // it is another key now
		}
	}
	r.own.lease = r.on.id
	d.records[id] = r
}

// doubt notes that a request about an owner had no answer.
func (d *Driver) doubt(id driver.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.records[id]; r != nil {
		r.unsure = true
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// asker is the lease of a holder that wants to hear when a waiter joins the queue.
type asker struct {
	id     driver.ID
	fence  uint64
	wanted func()
}

// ask notes whether the holder of a lease wants to hear of waiters that join. mu is held.
func (l *leases) ask(id driver.ID, fence uint64, wanted func()) {
	all := l.askers[id.Key]
	i := slices.IndexFunc(all, func(a asker) bool { return a.id == id })
	switch a := (asker{id, fence, wanted}); {
	case wanted == nil && i < 0:
	case wanted == nil && len(all) == 1:
		delete(l.askers, id.Key)
	case wanted == nil:
		l.askers[id.Key] = slices.Delete(all, i, i+1)
	case i >= 0:
		all[i] = a
	default:
		l.askers[id.Key] = append(all, a)
	}
}

// joined tells the holders of a key, with a fence up to that one, that a waiter joined its queue. A later
// holder has a larger fence.
func (l *leases) joined(key string, fence uint64) {
	l.tell(key, func(a asker) bool { return a.fence <= fence })
}

// tell tells those of a key's askers that it concerns.
func (l *leases) tell(key string, concerns func(asker) bool) {
	l.mu.Lock()
	var told []func()
	for _, a := range l.askers[key] {
		if concerns(a) {
			told = append(told, a.wanted)
		}
	}
	l.mu.Unlock()
	for _, wanted := range told {
		wanted()
	}
}

// asking says whether a holder wants to hear of waiters that join.
func (l *leases) asking() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.askers) > 0
}

// askOnceItStands renews the leases that ask. Some were renewed without asking, as the subscription did not stand yet: their holders
// did not hear of waiters that joined before. Where the next attempt to subscribe fails, it goes on beside Renew: the next renewal
// may be far away.
func (d *Driver) askOnceItStands(ctx context.Context, rs []driver.RenewRequest, leases []int, in *inbox) {
	var asks []driver.RenewRequest
	var lasts time.Duration
	for _, i := range leases {
		if rs[i].Wanted != nil {
			asks, lasts = append(asks, rs[i]), max(lasts, rs[i].TTL)
		}
	}
	if stands, err := in.Await(ctx); stands {
		d.askAgain(ctx, asks, in)
	} else if err != nil { // else this client may not subscribe: the next renewal asks
		d.running.Go(func() {
			ctx, cancel := context.WithTimeout(d.life, lasts)
			defer cancel()
			if in.Outlast(ctx, func() bool { return len(d.leases.stillAsk(asks)) > 0 }) {
				d.askAgain(ctx, d.leases.stillAsk(asks), in)
			}
		})
	}
}

// stillAsk returns the requests of leases that were not released, and still ask.
func (l *leases) stillAsk(rs []driver.RenewRequest) (asks []driver.RenewRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rs {
		if id := r.ID(); slices.ContainsFunc(l.askers[id.Key], func(a asker) bool { return a.id == id }) {
			asks = append(asks, r)
		}
	}
	return asks
}

// askAgain renews leases that ask, and tells the holders of keys with a waiter.
func (d *Driver) askAgain(ctx context.Context, rs []driver.RenewRequest, in *inbox) {
	all := make([]int, len(rs))
	for i := range all {
		all[i] = i
	}
	d.carry(ctx, d.leaseJobs(rs, all, in.channel), func(j *job) {
		d.report(rs, j, func(i int, r driver.Renewal) {
			if id := rs[i].ID(); r.Err == nil && r.Wanted {
				d.leases.tell(id.Key, func(a asker) bool { return a.id == id })
			}
		})
	})
}

// joinMark begins what try.lua publishes to the holders that asked.
const joinMark = "*"

// parseJoin reads it: a fence that none of them is above, in 16 digits, and the lock key.
func (d *Driver) parseJoin(s string) (key string, fence uint64, ok bool) {
	const digits = 16
	rest, ok := strings.CutPrefix(s, joinMark)
	if !ok || len(rest) < digits {
		return "", 0, false
	}
	fence, err := strconv.ParseUint(rest[:digits], 10, 64)
	key, ok = strings.CutPrefix(rest[digits:], d.prefix)
	return key, fence, ok && err == nil
}

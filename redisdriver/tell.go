// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// brokenChannel carries the leases that another client than their holder's released, see
// release.lua. There is one for the server: such leases are rare, and owners unique.
const brokenChannel = wire.Sidecars + "broken"

// Tell has lost called for each lease that this driver was granted, or renewed, and
// that another client released; see [driver.Teller]. The news comes over the connection
// for waiters' hints, which the first Renew of a lease opens, and waits for, where no wait
// did. Nothing is told while that connection does not stand, nor without the right
// to subscribe here, or to publish there.
func (d *Driver) Tell(lost func(id driver.ID, fence uint64)) {
	d.leases.mu.Lock()
	defer d.leases.mu.Unlock()
	d.leases.lost = lost
}

// leases are those that this driver was granted, or renews, and did not release.
type leases struct {
	mu     sync.Mutex
	lost   func(driver.ID, uint64) // nil: losses are not reported
	all    map[driver.ID]lease
	room   int                // when there are more, those that expired go
	askers map[string][]asker // by key: see wanted.go
}

type lease struct {
	fence uint64 // 0: not known
	until time.Time
	gives *wire.Call // its Release, where the names for it were at hand; not of a renewed lease, since it takes memory
}

// maxReady is of how many leases the Release is kept ready: it takes a kilobyte each.
const maxReady = 1000

// note notes a lease that lasts for ttl.
func (l *leases) note(id driver.ID, fence uint64, ttl time.Duration, gives *wire.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last(id, fence, ttl, gives)
}

// handed notes a lease that was handed over, unless its owner has that one already.
func (l *leases) handed(id driver.ID, to driver.Handover) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[id].fence < to.Fence {
		l.last(id, to.Fence, to.TTL, nil)
	}
}

// renewed notes what a renewal asks for.
func (l *leases) renewed(r driver.RenewRequest) {
	id := r.ID()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last(id, r.Fence, r.TTL, nil)
	if r.Wanted != nil || len(l.askers) > 0 {
		l.ask(id, l.all[id].fence, r.Wanted)
	}
}

// last is note. mu is held.
func (l *leases) last(id driver.ID, fence uint64, ttl time.Duration, gives *wire.Call) {
	now := time.Now()
	if len(l.all) >= maxReady {
		gives = nil
	}
	l.all[id] = lease{max(fence, l.all[id].fence), now.Add(ttl), gives}
	if len(l.all) > l.room { // some were never released
		maps.DeleteFunc(l.all, func(id driver.ID, of lease) bool {
			over := of.until.Before(now)
			if over {
				l.ask(id, 0, nil)
			}
			return over
		})
		l.room = 2*len(l.all) + 100
	}
}

// drop forgets a lease, and says whether it was noted, and what releases it if that was.
func (l *leases) drop(id driver.ID) (noted bool, gives *wire.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, noted := l.all[id]
	l.forget(id)
	return noted, of.gives
}

// forget forgets a lease. mu is held.
func (l *leases) forget(id driver.ID) {
	delete(l.all, id)
	if len(l.askers) > 0 {
		l.ask(id, 0, nil)
	}
}

// hear reports a lease that is over, if it is one of these. Its owner may have been granted
// a later one since, with a larger fence.
func (l *leases) hear(id driver.ID, fence uint64) {
	l.mu.Lock()
	of, noted := l.all[id]
	lost := l.lost
	if noted = noted && fence >= of.fence && lost != nil; noted {
		l.forget(id)
	}
	l.mu.Unlock()
	if noted {
		lost(id, fence)
	}
}

// listen opens the subscription that brings news of leases. It is nil when no caller
// wants them: asked says that a holder does.
func (d *Driver) listen(asked bool) *inbox {
	d.leases.mu.Lock()
	told := d.leases.lost != nil || asked
	d.leases.mu.Unlock()
	if !told {
		return nil
	}
	in, _ := d.boxes.get(-1) // without one, renewals find out
	if in != nil {
		in.Again()
		in.Use(-1)
	}
	return in
}

// parseLoss reads what release.lua publishes: the fence in 16 digits, and the lease as in a
// hint.
func (d *Driver) parseLoss(s string) (id driver.ID, fence uint64, ok bool) {
	const digits = 16
	if len(s) < digits {
		return id, 0, false
	}
	fence, err := strconv.ParseUint(s[:digits], 10, 64)
	c, ok := d.parseClaim(s[digits:])
	return c.ID(), fence, ok && err == nil
}

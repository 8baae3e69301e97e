// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// leases are those that this driver was granted, or renews, and did not release.
type leases struct {
	mu     sync.Mutex
	lost   func(driver.ID, uint64) // nil: losses are not reported
	all    map[driver.ID]lease
	room   int                // when there are more, those that expired go
	askers map[string][]asker // by key
}

type lease struct {
	fence uint64        // 0: not known
	until int64         // when it expires, in Unix ns; or its grant, where lasts says more
	lasts time.Duration // since started: until then at least the store keeps its grant; 0: not known
	gives *wire.Call    // its Release, where the names for it were at hand; not of a renewed lease, since it takes memory
}

var started = time.Now() // of the program, by its monotonic clock

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

// renewed notes what a renewal asks for, and says whether its grant lasts without it: for half of spare longer than it has to, in case
// that the store forgets the latest that prolonged the grant.
func (l *leases) renewed(r *driver.RenewRequest) (lasts bool) {
	id, now := r.ID(), time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.all[id]
	left := min(was.lasts-now.Sub(started), time.Duration(was.until-now.UnixNano())) // one clock stands still while the machine sleeps
	if lasts = was.lasts != 0 && was.fence == r.Fence && left >= r.TTL+keep+spare/2+r.TTL/6; !lasts {
		l.last(id, r.Fence, r.TTL, nil)
	}
	if r.Wanted != nil || len(l.askers) > 0 {
		l.ask(id, l.all[id].fence, r.Wanted)
	}
	return lasts
}

// lasting notes that a renewal that began at begun has the store keep the grant of a lease for longer.
func (l *leases) lasting(r *driver.RenewRequest, begun time.Time) {
	until := begun.Add(r.TTL + keep + spare)
	l.mu.Lock()
	defer l.mu.Unlock()
	if of, noted := l.all[r.ID()]; noted && of.fence == r.Fence {
		of.until, of.lasts = until.UnixNano(), until.Sub(started)
		l.all[r.ID()] = of
	}
}

// last is note. mu is held.
func (l *leases) last(id driver.ID, fence uint64, ttl time.Duration, gives *wire.Call) {
	now := time.Now()
	if len(l.all) >= maxReady {
		gives = nil
	}
	l.all[id] = lease{fence: max(fence, l.all[id].fence), until: now.Add(ttl).UnixNano(), gives: gives}
	if len(l.all) > l.room { // some were never released
		maps.DeleteFunc(l.all, func(id driver.ID, of lease) bool {
			over := of.until < now.UnixNano()
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

// reports says whether losses are reported.
func (l *leases) reports() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost != nil
}

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

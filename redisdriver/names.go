// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// What a node keeps beside what belongs to a lock key; see node.lua and
// fences.lua.
const (
	markKey     = wire.Sidecars + "fence"
	recordKey   = wire.Sidecars + "node"
	proposedKey = wire.Sidecars + "proposed"
)

// sharedValue begins the value of a lock key that is shared.
const sharedValue = "SHAREDLEASESAREINHASPSHARE "

// names are the Redis keys that belong to one lock key: see queue.lua, and key.lua for those of a shared key.
type names struct {
	lock, grant, queue, places, shares, held, room, side string

	mark any // a string; outside of a cluster it is one for all
}

// anyMark is markKey, as calls want it.
var anyMark any = markKey

// names returns the keys of a lock, all in its slot.
func (d *Driver) names(key string) names {
	const (
		grant, queue, places = wire.Sidecars + "grant:", wire.Sidecars + "queue:", wire.Sidecars + "places:"
		shares, held, room   = wire.Sidecars + "shares:", wire.Sidecars + "held:", wire.Sidecars + "room:"
	)
	var all, lock, side string // one text: this is on every call's way
	if p := d.prefix; strings.ContainsAny(p, "{}") || strings.ContainsAny(key, "{}") {
		lock = p + key
		side = wire.Beside(lock)
		all = grant + side + queue + side + places + side + shares + side + held + side + room + side
	} else {
		all = grant + "{" + p + key + "}" + queue + "{" + p + key + "}" + places + "{" + p + key + "}" +
			shares + "{" + p + key + "}" + held + "{" + p + key + "}" + room + "{" + p + key + "}"
		side = all[len(grant):][:len(p)+len(key)+2]
		lock = side[1 : len(side)-1]
	}
	cut := func(begins string) (name string) {
		name, all = all[:len(begins)+len(side)], all[len(begins)+len(side):]
		return name
	}
	n := names{
		lock: lock, grant: cut(grant), queue: cut(queue), places: cut(places), shares: cut(shares), held: cut(held), room: cut(room),
		mark: anyMark, side: side,
	}
	if d.cluster {
		n.mark = markKey + ":{" + wire.TagOf(wire.HashSlot(lock)) + "}"
	}
	return n
}

// keyed are the names of a key, as calls want them.
type keyed struct {
	names
	key string
	all [7]any // lock to room
}

// recent are some keys that were used last: most programs want the same ones again, and to make their names
// and have them as any is a fifth of what a call allocates.
type recent [1024]atomic.Pointer[keyed]

var recentSeed = maphash.MakeSeed()

// keyed returns the names of a key, as calls want them.
func (d *Driver) keyed(key string) *keyed {
	last := &d.recent[maphash.String(recentSeed, key)%uint64(len(d.recent))]
	if k := last.Load(); k != nil && k.key == key {
		return k
	}
	n := d.names(key)
	k := &keyed{n, n.lock[len(d.prefix):], [7]any{n.lock, n.grant, n.queue, n.places, n.shares, n.held, n.room}}
	last.Store(k)
	return k
}

// gone is the key that says an owner was released.
func (n names) gone(owner string) string { return wire.Sidecars + "gone:" + owner + ":" + n.side }

// value is what a lock key holds while an owner has it.
func value(c driver.Claim) string { return c.Owner + " " + c.Label }

// holderOf reads a lock key's value. A value that is not of our form is another
// program's. Of a shared key it names no owner.
func holderOf(v string) driver.Holder {
	const label = driver.OwnerLen + 1
	if strings.HasPrefix(v, sharedValue) {
		return driver.Holder{Mode: driver.Shared}
	}
	if len(v) >= label && len(v) <= label+driver.MaxLabel && v[driver.OwnerLen] == ' ' &&
		driver.ValidOwner(v[:driver.OwnerLen]) {
		return driver.Holder{Owner: v[:driver.OwnerLen], Label: v[label:]}
	}
	return driver.Holder{Foreign: true, Label: v[:min(len(v), driver.MaxLabel)]}
}

// keeping is for how many milliseconds the grant of a lease is kept.
func keeping(ttl time.Duration) int64 { return wire.Millis(ttl) + keep.Milliseconds() }

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Everything of ours but the locks themselves begins with this; no lock does.
const sidecars = "hasp."

// What a node keeps beside what belongs to a lock key; see node.lua and
// fences.lua.
const (
	markKey     = sidecars + "fence"
	recordKey   = sidecars + "node"
	proposedKey = sidecars + "proposed"
)

// sharedValue begins the value of a lock key that is shared.
const sharedValue = "SHAREDLEASESAREINHASPSHARE "

// names are the Redis keys that belong to one lock key: see queue.lua, and key.lua for those of one that is shared.
type names struct{ lock, grant, queue, places, shares, held, room, mark, side string }

// names returns the keys of a lock, all in its slot.
func (d *Driver) names(key string) names {
	lock := d.prefix + key
	side := beside(lock)
	const (
		grant, queue, places = sidecars + "grant:", sidecars + "queue:", sidecars + "places:"
		shares, held, room   = sidecars + "shares:", sidecars + "held:", sidecars + "room:"
	)
	all := grant + side + queue + side + places + side + shares + side + held + side + room + side // one text: this is on every call's way
	cut := func(begins string) (name string) {
		name, all = all[:len(begins)+len(side)], all[len(begins)+len(side):]
		return name
	}
	n := names{
		lock: lock, grant: cut(grant), queue: cut(queue), places: cut(places), shares: cut(shares), held: cut(held), room: cut(room),
		mark: markKey, side: side,
	}
	if d.cluster {
		n.mark += ":{" + tagOf(hashSlot(lock)) + "}"
	}
	return n
}

// gone is the key that says an owner was released.
func (n names) gone(owner string) string { return sidecars + "gone:" + owner + ":" + n.side }

// beside returns the end of a sidecar's name. It lies in the lock key's slot
// and tells the three forms apart, so that no two locks share a sidecar:
// "={tag}rest" for a key with a hash tag, "{key}" for one that has no }, and
// "#{tag of the slot}key" for the others.
func beside(lock string) string {
	if _, tagged := hashed(lock); tagged {
		return "=" + lock
	}
	if !strings.Contains(lock, "}") {
		return "{" + lock + "}"
	}
	return "#{" + tagOf(hashSlot(lock)) + "}" + lock
}

// lockOf undoes beside.
func lockOf(side string) (lock string, ok bool) {
	switch {
	case strings.HasPrefix(side, "="):
		lock = side[1:]
	case strings.HasPrefix(side, "{"):
		lock = strings.TrimSuffix(side[1:], "}")
	case strings.HasPrefix(side, "#{"):
		_, lock, _ = strings.Cut(side, "}")
	}
	return lock, lock != "" && beside(lock) == side
}

// value is what a lock key holds while an owner has it.
func value(c driver.Claim) string { return c.Owner + " " + c.Label }

// holderOf reads a lock key's value. What is not of our form is somebody
// else's. Of a key that is shared it names nobody.
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

// glob escapes what SCAN's MATCH would read as a pattern.
func glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// millis counts whole milliseconds, rounded up: the store keeps a lease at
// least as long as was asked.
func millis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// keeping is for how many milliseconds the grant of a lease is kept.
func keeping(ttl time.Duration) int64 { return millis(ttl) + keep.Milliseconds() }

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// What a node keeps beside what belongs to a lock key; see node.lua and fences.lua.
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

	key  string
	all  [7]any // lock to room, as calls want them
	mark any    // a string; outside of a cluster it is one for all
}

// anyMark is markKey, as calls want it.
var anyMark any = markKey

// keyspace is where the locks of a Driver stand.
type keyspace struct {
	prefix  string
	cluster bool // keys of one command must share a slot
	recent  recent
}

// names returns the keys of a lock, all in its slot.
func (k *keyspace) names(key string) *names {
	const (
		grant, queue, places = wire.Sidecars + "grant:", wire.Sidecars + "queue:", wire.Sidecars + "places:"
		shares, held, room   = wire.Sidecars + "shares:", wire.Sidecars + "held:", wire.Sidecars + "room:"
	)
	var all, lock, side string // one text: this is on every call's way
	if p := k.prefix; strings.ContainsAny(p, "{}") || strings.ContainsAny(key, "{}") {
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
	n := &names{
		lock: lock, grant: cut(grant), queue: cut(queue), places: cut(places), shares: cut(shares), held: cut(held), room: cut(room),
		side: side, key: lock[len(k.prefix):], mark: anyMark,
	}
	n.all = [7]any{n.lock, n.grant, n.queue, n.places, n.shares, n.held, n.room}
	if k.cluster {
		n.mark = markKey + ":{" + wire.TagOf(wire.HashSlot(lock)) + "}"
	}
	return n
}

// fewNames returns the names that the renewal of an Exclusive lease needs: a client may hold thousands of leases.
func (k *keyspace) fewNames(key string) (lock, grant, queue string) {
	const grants, queues = wire.Sidecars + "grant:", wire.Sidecars + "queue:"
	lock = k.prefix + key
	side := wire.Beside(lock)
	both := grants + side + queues + side
	return lock, both[:len(grants)+len(side)], both[len(grants)+len(side):]
}

// recent are the names of some keys that were used last: most programs want the same keys again, and to make the names
// is a fifth of what a call allocates.
type recent [1024]atomic.Pointer[names]

var recentSeed = maphash.MakeSeed()

// keyed is names, and remembers them.
func (k *keyspace) keyed(key string) *names {
	last := &k.recent[maphash.String(recentSeed, key)%uint64(len(k.recent))]
	if n := last.Load(); n != nil && n.key == key {
		return n
	}
	n := k.names(key)
	last.Store(n)
	return n
}

// hashSlot is that of a lock in a cluster, else -1.
func (k *keyspace) hashSlot(key string) int {
	if !k.cluster {
		return -1
	}
	return wire.HashSlot(k.prefix + key)
}

// pattern is what SCAN finds locks by, and all that belongs to them: "lock:a…" and "hasp.queue:{lock:a…".
func (k *keyspace) pattern(prefix string) string { return "*" + wire.Glob(k.prefix+prefix) + "*" }

// gone is the key that says an owner was released.
func (n *names) gone(owner string) string { return wire.Sidecars + "gone:" + owner + ":" + n.side }

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

// grant is the head of a grant record, see queue.lua, or of one of the leases of
// a key that is shared, see key.lua.
type grant struct {
	owner string
	fence uint64
	since time.Time
	state byte // 'h', 'm', 'c', 'H', 'M', 'C'; 0 when there is no record of a holder

	mode  driver.Mode
	limit int
	slot  int
}

// parseGrant reads the first 59 bytes of a grant record, and behind them limit
// and slot of a lease that is shared; anything else is no record.
func parseGrant(s string) grant {
	if len(s) > 59 {
		g := parseGrant(s[:59])
		limit, slot, ok := strings.Cut(s[60:], " ")
		slot, _, _ = strings.Cut(slot, " ") // what else the lease says
		var err, err2 error
		g.mode = driver.Shared
		g.limit, err = strconv.Atoi(limit)
		g.slot, err2 = strconv.Atoi(slot)
		if s[59] != ' ' || !ok || err != nil || err2 != nil || g.state == 0 {
			return grant{}
		}
		return g
	}
	if len(s) != 59 || s[26] != ' ' || s[43] != ' ' || s[57] != ' ' || !driver.ValidOwner(s[:26]) {
		return grant{}
	}
	fence, err := strconv.ParseUint(s[27:43], 10, 64)
	ms, err2 := strconv.ParseUint(s[44:57], 10, 63)
	if err != nil || err2 != nil {
		return grant{}
	}
	switch s[58] {
	case 'C':
		fence = 0 // of a holder before
		fallthrough
	case 'h', 'm', 'c', 'H', 'M':
		return grant{owner: s[:26], fence: fence, since: time.UnixMilli(int64(ms)), state: s[58]}
	}
	return grant{}
}

// holder adds what the grant record knows, if it is about this holder.
func (g grant) holder(value string) driver.Holder {
	h := holderOf(value)
	if !h.Foreign && h.Owner == g.owner && h.Owner != "" {
		h.Since, h.Mode, h.Limit, h.Slot = g.since, g.mode, g.limit, g.slot
	}
	return h
}

// layout is what the scripts and this package must agree on: F.Keep in Lua is its Keep.
var layout = struct {
	Shared                   string
	Linger, Keep, Spare, Day int64 // ms
	Lead, Reach, Turn        int64 // us
	Most                     int64 // Lua does not tell larger numbers from their neighbours
	Free                     int64 // no limit is above a quarter of it
	Askers                   int64 // inboxes besides the latest that a grant has
}{
	Shared: sharedValue,
	Linger: linger.Milliseconds(),
	Keep:   keep.Milliseconds(),
	Spare:  spare.Milliseconds(),
	Day:    (24 * time.Hour).Milliseconds(),
	Lead:   voting.MaxFenceSkew.Microseconds(),
	Reach:  1 << 20,
	Turn:   (20 * time.Second).Microseconds(),
	Most:   1<<53 - 1,
	Free:   4 * maxLimit,
	Askers: 31,
}

// The requests of the batch script, by kind. A request is its kind, and then all of the
// kind's fields in their order here. The scripts are built with their places, and
// know a field by its name; a field that may be missing is nil there, and "" on the way.
type (
	// tryArgs: Exclusive, and with neither a place in the queue nor a proposal.
	tryArgs struct {
		value string // what the lock holds: "<owner> <label>"
		ttl   int64  // ms
		state string // of the grant: see queue.lua
		keep  int64  // ms for which the grant is kept
	}
	// proposeArgs: as tryArgs, with a proposed fence.
	proposeArgs struct {
		value string
		ttl   int64
		state string
		fence string // 16 digits
	}
	// tryAnyArgs: any Try.
	tryAnyArgs struct {
		value    string
		ttl      int64
		state    string
		fences   int
		fence    string `lua:"optional"` // the proposed one, or the one held: 16 digits; or ""
		how      string // "", "raise", "restore" or "convert"
		limit    string `lua:"optional"` // of an owner that shares the key, "0" for none; Exclusive: ""
		place    string `lua:"optional"` // to join the queue, what follows contact in a place; or ""
		patience int64  // of that place, ms
	}
	// releaseArgs: of an owner that finished, and that nothing is asked for any more.
	releaseArgs struct{ value string }
	// withdrawArgs: as releaseArgs, but a lease with a larger fence stays.
	withdrawArgs struct {
		value string
		upTo  string // 16 digits
	}
	// releaseAnyArgs: any Release.
	releaseAnyArgs struct {
		value     string
		tombstone string `lua:"optional"` // ms for which this owner is granted nothing more; or ""
		upTo      string `lua:"optional"` // as of withdrawArgs, or ""
		ending    string `lua:"optional"` // "", "unused", "unfinished", or "unclaimed": a lease goes only if it was handed off and never claimed
		tell      string `lua:"optional"` // the channel on which its holder hears of it, or ""
	}
)

func (a tryArgs) args() []any {
	return []any{"try", a.value, number(a.ttl), letter(a.state), number(a.keep)}
}
func (a proposeArgs) args() []any  { return []any{"propose", a.value, a.ttl, a.state, a.fence} }
func (a releaseArgs) args() []any  { return []any{"release", a.value} }
func (a withdrawArgs) args() []any { return []any{"withdraw", a.value, a.upTo} }

func (a tryAnyArgs) args() []any {
	return []any{"tryAny", a.value, a.ttl, a.state, a.fences, a.fence, a.how, a.limit, a.place, a.patience}
}

func (a releaseAnyArgs) args() []any {
	return []any{"releaseAny", a.value, a.tombstone, a.upTo, a.ending, a.tell}
}

// numbers are some that were used last: a program has few TTLs, and each call wants them as any.
var numbers [16]atomic.Pointer[any]

func number(n int64) any {
	last := &numbers[uint64(n)%uint64(len(numbers))]
	if p := last.Load(); p != nil && *p == n {
		return *p
	}
	var v any = n
	last.Store(&v)
	return v
}

func letter(s string) any {
	if s == "h" {
		return "h" // a constant, which needs no memory as any
	}
	return s
}

// kinds are these, each with how many keys its requests have: the eighth is the owner's
// tombstone.
var kinds = []struct {
	keys   int
	fields interface{ args() []any }
}{
	{8, tryArgs{}}, {8, proposeArgs{}}, {8, tryAnyArgs{}}, {7, releaseArgs{}}, {7, withdrawArgs{}}, {8, releaseAnyArgs{}},
}

const (
	linger = 60 * time.Second // a sidecar outlives what it belongs to for so long
	keep   = 61 * time.Second // the largest fence of a key is kept for so long after its lease
	spare  = 2 * time.Minute  // and for so much longer after a renewal of a TTL up to this, so that the next ones need not see to it
)

// maxLimit is the largest limit that the scripts tell from none, see `room` in common.lua.
const maxLimit = 1 << 40

func limitOf(c driver.Claim) string { return strconv.FormatInt(min(int64(c.Limit), maxLimit), 10) }

// maxFence is the largest that 16 digits hold. The scripts compare fences as
// texts; this one is centuries ahead of every clock, and so refused.
const maxFence = 9_999_999_999_999_999

func digits(fence uint64) string { return strconv.FormatUint(maxFence+1+min(fence, maxFence), 10)[1:] }

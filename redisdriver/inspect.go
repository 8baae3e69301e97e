// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// maxLine is how many waiters Inspect names, and how many that share a key.
const maxLine = 1000

// Inspect describes a key's holders and waiters; see [driver.Driver]. It counts the
// first 10,000 places of the queue, and the first 10,000 holders of a shared key.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := d.checkKey(key); err != nil {
		return driver.Info{}, err
	}
	info, err := d.look(ctx, key, maxLine)
	if err != nil {
		return driver.Info{}, err
	}
	info.ByHand = byHand(d.names(key), info.Holder.Mode == driver.Shared)
	if info.Held && info.Holders == nil {
		info.Holders = []driver.Holding{{Holder: info.Holder, Fence: info.Fence, Left: info.Left}}
	}
	return info, nil
}

// look asks for a key and the first n of its queue.
func (d *Driver) look(ctx context.Context, key string, n int) (driver.Info, error) {
	names := d.names(key)
	v, err := d.send.Do(ctx, &wire.Call{
		Script: inspectScript, Args: []any{n, maxLine},
		Keys: []any{names.lock, names.grant, names.queue, names.places, names.shares, names.held},
	})
	if err != nil {
		return driver.Info{}, err
	}
	r := wire.NewReply(v)
	info := driver.Info{Key: key}
	kind, text, left := wire.Next[string](r), wire.Next[string](r), wire.Next[int64](r)
	head := wire.Next[string](r)
	if err := newer(names.grant, head); err != nil {
		return driver.Info{}, err
	}
	g := parseGrant(head)
	info.Waiters = int(wire.Next[int64](r))
	info.Queue = waiters(wire.NewReply(wire.Next[[]any](r)))
	info.Holds = int(wire.Next[int64](r))
	shares := wire.NewReply(wire.Next[[]any](r))
	switch {
	case r.Bad:
		return driver.Info{}, wire.ErrReply
	case kind == "string" && info.Holds == 0 && strings.HasPrefix(text, sharedValue): // they are over
	case kind == "string":
		info.Free = byHandFree(names.lock, text, left)
		describe(&info, text, wire.Span(left), g)
		if info.Holders = holders(shares); len(info.Holders) > 0 {
			first := info.Holders[0]
			info.Holder, info.Fence, info.Left = first.Holder, first.Fence, first.Left
		}
	case kind != "none":
		return driver.Info{}, &TypeError{Key: names.lock, Type: kind}
	}
	return info, nil
}

// byHand are redis-cli statements about a key, in the order in which a person
// would ask.
func byHand(n names, shared bool) []string {
	statements := []string{
		"GET " + wire.Quote(n.lock),
		"PTTL " + wire.Quote(n.lock),
		"GET " + wire.Quote(n.grant),
		"ZRANGE " + wire.Quote(n.queue) + " 0 -1",
		"HGETALL " + wire.Quote(n.places),
	}
	if shared {
		statements = append(statements, "ZRANGE "+wire.Quote(n.shares)+" 0 -1 WITHSCORES", "HGETALL "+wire.Quote(n.held))
	}
	return statements
}

// maxShown is how much of a value inspect.lua answers with, in bytes.
const maxShown = 600

// byHandFree is the statement that deletes a key which is not of our form and has no
// expiry, if its value still is what was seen: a client that took it since loses
// nothing. There is none for a value of which we saw a part.
func byHandFree(lock, value string, left int64) []string {
	if left != int64(wire.Forever) || len(value) >= maxShown || !holderOf(value).Foreign {
		return nil
	}
	const script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
	return []string{"EVAL " + wire.Quote(script) + " 1 " + wire.Quote(lock) + " " + wire.Quote(value)}
}

// waiters reads places as inspect.lua lists them: the value and the place.
func waiters(r *wire.Reply) (queue []driver.Holder) {
	for !r.Bad && len(r.Fields) > 0 {
		h := holderOf(wire.Next[string](r))
		if f := strings.Fields(wire.Next[string](r)); len(f) > 3 {
			if _, limit, ok := strings.Cut(f[3], "S"); ok {
				h.Mode = driver.Shared
				h.Limit, _ = strconv.Atoi(strings.TrimSuffix(limit, "!")) // "!": it was handed the key, and did not claim it
			}
		}
		queue = append(queue, h)
	}
	return queue
}

// holders reads the leases of a key that is shared as inspect.lua lists them,
// and returns them in the order of their grants.
func holders(r *wire.Reply) (all []driver.Holding) {
	for !r.Bad && len(r.Fields) > 0 {
		value, left := wire.Next[string](r), wire.Next[int64](r)
		g := parseGrant(value[:min(len(value), driver.OwnerLen+1)] + wire.Next[string](r))
		all = append(all, driver.Holding{Holder: g.holder(value), Fence: g.fence, Left: wire.Span(left)})
	}
	slices.SortStableFunc(all, func(a, b driver.Holding) int {
		return cmp.Or(a.Holder.Since.Compare(b.Holder.Since), cmp.Compare(a.Fence, b.Fence))
	})
	return all
}

// describe fills in the holder of a key, from its value, what PTTL says of it and
// its grant record.
func describe(info *driver.Info, text string, left time.Duration, g grant) {
	info.Held, info.Holds = true, max(info.Holds, 1)
	info.Holder = g.holder(text)
	if !info.Holder.Since.IsZero() {
		info.Fence = g.fence
	}
	info.Left = left
}

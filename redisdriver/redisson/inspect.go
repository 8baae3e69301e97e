// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// maxLine is how many waiters Inspect names.
const maxLine = 1000

// Inspect describes a key's holders and waiters; see [driver.Driver]. Those of Java are foreign. It counts the first 10,000 places
// of a queue; of a hash with more than 1,000 fields it says only that it is held.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := d.valid(key, driver.CheckKey(key)); err != nil {
		return driver.Info{}, err
	}
	c := d.inspectCall(key, maxLine)
	if _, err := d.send.Do(ctx, c); err != nil {
		return driver.Info{}, err
	}
	info, _, err := d.describe(key, c.Reply)
	if err != nil {
		return driver.Info{}, err
	}
	info.LookCommands = d.byHand(d.names(key))
	return info, nil
}

func (d *Driver) inspectCall(key string, names int) *wire.Call {
	n := d.names(key)
	c := &wire.Call{Script: inspect, Keys: []any{n.lock, n.about()}, Args: []any{n.reader, names}}
	if d.kind == Fair {
		c.Keys = append(c.Keys, n.queue, n.waiters())
	}
	return c
}

// describe reads the answer of inspect.lua. lock is false for a hash with other fields than Redisson's locks.
func (d *Driver) describe(key string, reply any) (info driver.Info, lock bool, err error) {
	r := wire.NewReply(reply)
	info.Key = key
	kind := wire.Next[string](r)
	lock = wire.Next[int64](r) == 1
	left := wire.Span(wire.Next[int64](r))
	info.Leases = int(wire.Next[int64](r))
	holders := wire.NewReply(wire.Next[[]any](r))
	info.Waiters = int(wire.Next[int64](r))
	queue := wire.NewReply(wire.Next[[]any](r))
	if kind != "hash" && kind != "none" && !r.Bad {
		return driver.Info{}, false, &wire.TypeError{Key: d.prefix + key, Type: kind}
	}
	for !holders.Bad && len(holders.Fields) > 0 {
		field, about := wire.Next[string](holders), wire.Next[string](holders)
		l := driver.Holding{Left: wire.Span(wire.Next[int64](holders))}
		l.Holder, l.Fence = d.holderOf(field, about)
		info.Holders = append(info.Holders, l)
	}
	for !queue.Bad && len(queue.Fields) > 0 {
		info.Queue = append(info.Queue, waiterOf(wire.Next[string](queue), wire.Next[string](queue)))
	}
	if r.Bad || holders.Bad || queue.Bad || len(r.Fields) > 0 {
		return driver.Info{}, false, wire.ErrReply
	}
	slices.SortStableFunc(info.Holders, func(a, b driver.Holding) int {
		return cmp.Or(a.Holder.Since.Compare(b.Holder.Since), cmp.Compare(a.Fence, b.Fence))
	})
	if len(info.Holders) > 0 {
		first := info.Holders[0]
		info.Held, info.Holder, info.Fence, info.Left = true, first.Holder, first.Fence, first.Left
	}
	if info.Leases == 0 && kind == "hash" { // readers that still keep writers out, though their leases have ended
		info.Held, info.Leases, info.Left = true, 1, left
		info.Holder = driver.Holder{Foreign: true, Mode: driver.Shared}
		info.Holders = []driver.Holding{{Holder: info.Holder, Left: left}}
	}
	return info, lock, nil
}

// waiterOf reads a place in a queue.
func waiterOf(field, said string) driver.Holder {
	owner, ok := ownerOf(field)
	if !ok {
		return driver.Holder{Foreign: true, Label: field[:min(len(field), driver.MaxLabel)]}
	}
	h := driver.Holder{Owner: owner}
	if f := strings.SplitN(said, " ", 4); len(f) == 4 {
		h.Label = f[3]
	}
	return h
}

// byHand are redis-cli statements about a key, in the order in which a person would ask.
func (d *Driver) byHand(n names) []string {
	statements := []string{"HGETALL " + wire.Quote(n.lock), "PTTL " + wire.Quote(n.lock), "HGETALL " + wire.Quote(n.about())}
	switch d.kind {
	case Fair:
		statements = append(statements, "LRANGE "+wire.Quote(n.queue)+" 0 -1", "ZRANGE "+wire.Quote(n.timeouts)+" 0 -1 WITHSCORES", "HGETALL "+wire.Quote(n.waiters()))
	case Fenced:
		statements = append(statements, "GET "+wire.Quote(n.token))
	case Lock, ReadWrite:
	}
	return statements
}

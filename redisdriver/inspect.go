// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
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
		info.Holders = []driver.Lease{{Holder: info.Holder, Fence: info.Fence, Left: info.Left}}
	}
	return info, nil
}

// look asks for a key and the first n of its queue.
func (d *Driver) look(ctx context.Context, key string, n int) (driver.Info, error) {
	names := d.names(key)
	v, err := d.send.do(ctx, &call{
		script: inspectScript, args: []any{n, maxLine},
		keys: []any{names.lock, names.grant, names.queue, names.places, names.shares, names.held},
	})
	if err != nil {
		return driver.Info{}, err
	}
	r := newReply(v)
	info := driver.Info{Key: key}
	kind, text, left := next[string](r), next[string](r), next[int64](r)
	g := parseGrant(next[string](r))
	info.Waiters = int(next[int64](r))
	info.Queue = waiters(newReply(next[[]any](r)))
	info.Holds = int(next[int64](r))
	shares := newReply(next[[]any](r))
	switch {
	case r.bad:
		return driver.Info{}, errReply
	case kind == "string" && info.Holds == 0 && strings.HasPrefix(text, sharedValue): // they are over
	case kind == "string":
		info.Free = byHandFree(names.lock, text, left)
		describe(&info, text, span(left), g)
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
		"GET " + quote(n.lock),
		"PTTL " + quote(n.lock),
		"GET " + quote(n.grant),
		"ZRANGE " + quote(n.queue) + " 0 -1",
		"HGETALL " + quote(n.places),
	}
	if shared {
		statements = append(statements, "ZRANGE "+quote(n.shares)+" 0 -1 WITHSCORES", "HGETALL "+quote(n.held))
	}
	return statements
}

// maxShown is how much of a value inspect.lua answers with, in bytes.
const maxShown = 600

// byHandFree is the statement that deletes a key which is not of our form and has no
// expiry, if its value still is what was seen: by whoever took it since, nothing is
// lost. It is not there for a value of which we saw a part.
func byHandFree(lock, value string, left int64) []string {
	if left != int64(forever) || len(value) >= maxShown || !holderOf(value).Foreign {
		return nil
	}
	const script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
	return []string{"EVAL " + quote(script) + " 1 " + quote(lock) + " " + quote(value)}
}

// waiters reads places as inspect.lua lists them: the value and the place.
func waiters(r *reply) (queue []driver.Holder) {
	for !r.bad && len(r.fields) > 0 {
		h := holderOf(next[string](r))
		if f := strings.Fields(next[string](r)); len(f) > 3 {
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
func holders(r *reply) (all []driver.Lease) {
	for !r.bad && len(r.fields) > 0 {
		value, left := next[string](r), next[int64](r)
		g := parseGrant(value[:min(len(value), driver.OwnerLen+1)] + next[string](r))
		all = append(all, driver.Lease{Holder: g.holder(value), Fence: g.fence, Left: span(left)})
	}
	slices.SortStableFunc(all, func(a, b driver.Lease) int {
		return cmp.Or(a.Holder.Since.Compare(b.Holder.Since), cmp.Compare(a.Fence, b.Fence))
	})
	return all
}

// quote writes s as redis-cli reads it, in one printable line.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// What PTTL says of a key without an expiry and of one that is not there;
// other values are milliseconds.
const (
	forever time.Duration = -1
	free    time.Duration = -2
)

// maxMillis is the longest time.Duration: a TTL rounded up may be longer.
const maxMillis = int64(math.MaxInt64 / time.Millisecond)

// span reads PTTL's number.
func span(pttl int64) time.Duration {
	if pttl < 0 {
		return time.Duration(pttl)
	}
	return time.Duration(min(pttl, maxMillis)) * time.Millisecond
}

// describe fills in who holds a key, from its value, what PTTL says of it and
// its grant record.
func describe(info *driver.Info, text string, left time.Duration, g grant) {
	info.Held, info.Holds = true, max(info.Holds, 1)
	info.Holder = g.holder(text)
	if !info.Holder.Since.IsZero() {
		info.Fence = g.fence
	}
	info.Left = left
}

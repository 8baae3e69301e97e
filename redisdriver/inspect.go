// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	info.LookCommands = byHand(d.names(key), info.Holder.Mode == driver.Shared)
	if info.Held && info.Holders == nil {
		info.Holders = []driver.Holding{{Holder: info.Holder, Fence: info.Fence, Left: info.Left}}
	}
	return info, nil
}

// look asks for a key and the first n of its queue.
func (d *Driver) look(ctx context.Context, key string, n int) (driver.Info, error) {
	names := d.names(key)
	v, err := d.send.Do(ctx, &wire.Call{Script: inspectScript, Args: []any{n, maxLine}, Keys: names.all[:6]})
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
	info.Leases = int(wire.Next[int64](r))
	shares := wire.NewReply(wire.Next[[]any](r))
	switch {
	case r.Bad:
		return driver.Info{}, wire.ErrReply
	case kind == "string" && info.Leases == 0 && strings.HasPrefix(text, sharedValue): // they are over
	case kind == "string":
		info.FreeCommands = byHandFree(names.lock, text, left)
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
func byHand(n *names, shared bool) []string {
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
	info.Held, info.Leases = true, max(info.Leases, 1)
	info.Holder = g.holder(text)
	if !info.Holder.Since.IsZero() {
		info.Fence = g.fence
	}
	info.Left = left
}

// List yields the keys that are held or waited for; see [driver.Driver]. It reads the
// whole database with SCAN, in steps. With NoPrefix every string in the database counts
// as a lock. A key that a newer hasp uses in another layout is listed as a foreign client's.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	if d.bad != nil {
		return func(yield func(driver.Info, error) bool) { yield(driver.Info{}, d.bad) }
	}
	return func(yield func(driver.Info, error) bool) {
		looked := map[string]bool{} // a lock and its queue are met in different steps
		for info, err := range wire.Scan(ctx, d.client, d.pattern(prefix), listScan, func(ctx context.Context, keys []string) ([]driver.Info, error) {
			return d.describeAll(ctx, d.lockKeys(keys, prefix), looked)
		}) {
			if !yield(info, err) {
				return
			}
		}
	}
}

// listScan is how many keys one SCAN of a list looks at: a fraction of a millisecond.
const listScan = 1000

// lockKeys returns the locks that Redis keys are, or belong to as a queue, as
// far as they start with prefix; each once.
func (d *Driver) lockKeys(keys []string, prefix string) []string {
	var out []string
	seen := map[string]bool{}
	for _, k := range keys {
		if side, ok := strings.CutPrefix(k, wire.Sidecars+"queue:"); ok {
			if k, ok = wire.LockOf(side); !ok {
				continue
			}
		} else if strings.HasPrefix(k, wire.Sidecars) {
			continue
		}
		key, ok := strings.CutPrefix(k, d.prefix)
		if ok && key != "" && len(key) <= driver.MaxKey && strings.HasPrefix(key, prefix) && !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out
}

// describeAll looks at keys in one pipeline, and at keys that are shared or waited for,
// unless they were looked at, in a few more. Keys that are no locks, or have neither
// holders nor waiters any more, are left out.
func (d *Driver) describeAll(ctx context.Context, keys []string, looked map[string]bool) ([]driver.Info, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	asked := make([]wire.Command, 0, 4*len(keys))
	for _, key := range keys {
		n := d.names(key)
		asked = append(asked, wire.Plain("getrange", n.lock, 0, maxShown-1), wire.Plain("getrange", n.grant, 0, 58),
			wire.Plain("pttl", n.lock), wire.Plain("zcard", n.queue))
	}
	if err := wire.Ask(ctx, d.client, asked); err != nil {
		return nil, err
	}
	var infos []driver.Info
	var closer []string
	for i, f := range slices.Collect(slices.Chunk(asked, 4)) {
		value, grant := f[0].Text(), f[1].Text()
		if wire.Says(f[0].Err, "WRONGTYPE") {
			continue // not a lock
		}
		pttl, err := f[2].Int()
		if err := cmp.Or(f[0].Err, err); err != nil {
			return infos, err
		}
		waiting, _ := f[3].Int()
		info, left, waits := driver.Info{Key: keys[i]}, wire.Span(pttl), waiting > 0
		switch err := newer("", grant); {
		case left == wire.Free && !waits:
		case err != nil:
			info, _ = listed(keys[i], info, err)
		case !waits && !strings.HasPrefix(value, sharedValue):
			describe(&info, value, left, parseGrant(grant))
		case !looked[keys[i]]:
			looked[keys[i]] = true
			closer = append(closer, keys[i])
		}
		if info.Held || info.Waiters > 0 {
			infos = append(infos, info)
		}
	}
	more, err := d.lookAll(ctx, closer)
	return append(infos, more...), err
}

// atOnce is how many keys are looked at together: the sender puts them into one pipeline.
const atOnce = 64

// lookAll looks at keys, and returns the keys that are held or waited for, without names. An
// error is of one of them.
func (d *Driver) lookAll(ctx context.Context, keys []string) ([]driver.Info, error) {
	var infos []driver.Info
	for some := range slices.Chunk(keys, atOnce) {
		found, errs := make([]driver.Info, len(some)), make([]error, len(some))
		var all sync.WaitGroup
		for i, key := range some {
			all.Go(func() {
				info, err := d.look(ctx, key, 0)
				found[i], errs[i] = listed(key, info, err)
			})
		}
		all.Wait()
		for i, info := range found {
			if errs[i] != nil {
				return infos, errs[i]
			}
			if info.Held || info.Waiters > 0 {
				info.Holders, info.Queue, info.FreeCommands = nil, nil, nil
				infos = append(infos, info)
			}
		}
	}
	return infos, nil
}

// listed is what a list says of a key that look says so much of: a record of a newer hasp hides no other key.
func listed(key string, info driver.Info, err error) (driver.Info, error) {
	if later := new(LayoutError); errors.As(err, &later) {
		return driver.Unreadable(key, fmt.Sprintf("a newer hasp, layout %d", later.Layout)), nil
	}
	return info, err
}

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
	"strings"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// List yields the keys that are held or waited for; see [driver.Driver]. It reads the
// whole database with SCAN, in steps. With NoPrefix every string in the database counts
// as a lock. A key that a newer hasp uses in another layout is listed as a foreign client's.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	if d.bad != nil {
		return func(yield func(driver.Info, error) bool) { yield(driver.Info{}, d.bad) }
	}
	return func(yield func(driver.Info, error) bool) {
		looked := map[string]bool{} // a lock and its queue are met in different steps
		// One pattern finds locks and queues alike: "lock:a…" and "hasp.queue:{lock:a…".
		for info, err := range wire.Scan(ctx, d.rdb, "*"+wire.Glob(d.prefix+prefix)+"*", func(ctx context.Context, keys []string) ([]driver.Info, error) {
			return d.describeAll(ctx, d.lockKeys(keys, prefix), looked)
		}) {
			if !yield(info, err) {
				return
			}
		}
	}
}

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

// describeAll looks at keys in one pipeline, and at those that are shared or waited for,
// unless they were looked at, in a few more. Keys that are no locks, or have neither
// holders nor waiters any more, are left out.
func (d *Driver) describeAll(ctx context.Context, keys []string, looked map[string]bool) ([]driver.Info, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	type found struct {
		value, grant *redis.StringCmd
		left         *redis.Cmd // as a number: a time.Duration may be too short for it
		queue        *redis.IntCmd
	}
	all, err := wire.Await(ctx, func(ctx context.Context) ([]found, error) {
		all := make([]found, len(keys))
		_, _ = d.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range keys {
				n := d.names(key)
				all[i] = found{
					value: p.GetRange(ctx, n.lock, 0, 599), grant: p.GetRange(ctx, n.grant, 0, 58),
					left: p.Do(ctx, "PTTL", n.lock), queue: p.ZCard(ctx, n.queue),
				}
			}
			return nil
		})
		return all, nil // each command has its own error
	})
	if err != nil {
		return nil, err
	}
	var infos []driver.Info
	var closer []string
	for i, f := range all {
		if redis.HasErrorPrefix(f.value.Err(), "WRONGTYPE") {
			continue // not a lock
		}
		pttl, err := f.left.Int64()
		if err := cmp.Or(f.value.Err(), err); err != nil {
			return infos, err
		}
		info, left, waits := driver.Info{Key: keys[i]}, wire.Span(pttl), f.queue.Val() > 0
		switch err := newer("", f.grant.Val()); {
		case left == wire.Free && !waits:
		case err != nil:
			info, _ = listed(keys[i], info, err)
		case !waits && !strings.HasPrefix(f.value.Val(), sharedValue):
			describe(&info, f.value.Val(), left, parseGrant(f.grant.Val()))
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

// lookAll looks at keys, and returns those that are held or waited for, without names. An
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
				info.Holders, info.Queue, info.Free = nil, nil, nil
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

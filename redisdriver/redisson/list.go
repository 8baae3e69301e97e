// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// List yields the keys that are held or waited for; see [driver.Driver]. It reads the whole database with SCAN, in steps. Without
// a Prefix every hash in it may be a lock, and counts as one if its fields are those of Redisson's locks.
// Behind the first 1,000 places of a queue it counts all waiters, and does not look at which of them live.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	if d.bad != nil {
		return func(yield func(driver.Info, error) bool) { yield(driver.Info{}, d.bad) }
	}
	// One pattern finds locks and queues alike: "a…" and "redisson_lock_queue:{a…".
	return wire.Scan(ctx, d.client, "*"+wire.Glob(d.prefix+prefix)+"*", 1000, func(ctx context.Context, keys []string) ([]driver.Info, error) {
		return d.describeAll(ctx, d.lockKeys(keys, prefix))
	})
}

// lockKeys returns the locks that Redis keys are, or belong to as a queue, as
// far as they start with prefix; each once.
func (d *Driver) lockKeys(keys []string, prefix string) []string {
	var out []string
	seen := map[string]bool{}
	for _, k := range keys {
		if side, ok := strings.CutPrefix(k, "redisson_lock_queue:"); ok && d.kind == Fair {
			k = side
			if inner := strings.TrimSuffix(strings.TrimPrefix(side, "{"), "}"); prefixName("", inner) == ":"+side {
				k = inner
			}
		} else if strings.HasPrefix(k, wire.Sidecars) {
			continue
		}
		key, ok := strings.CutPrefix(k, d.prefix)
		if ok && key != "" && len(key) <= driver.MaxKey && strings.HasPrefix(key, prefix) && !seen[key] && d.valid(key, nil) == nil {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out
}

// describeAll looks at keys in one pipeline. Keys that are no locks, or
// have neither holders nor waiters any more, are left out.
func (d *Driver) describeAll(ctx context.Context, keys []string) (infos []driver.Info, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	calls := make([]*wire.Call, len(keys))
	for i, key := range keys {
		calls[i] = d.inspectCall(key, 0)
	}
	_, err = wire.Await(ctx, func(ctx context.Context) (none struct{}, _ error) {
		d.send.Exec(ctx, calls)
		return none, nil // each call has its own error
	})
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		switch err := calls[i].Err; {
		case notOurs(err):
			continue
		case err != nil:
			return infos, err
		}
		info, lock, err := d.describe(key, calls[i].Reply)
		var other *wire.TypeError
		switch {
		case errors.As(err, &other):
			continue
		case err != nil:
			return infos, err
		case !lock && info.Waiters == 0:
			continue
		}
		info.Holders = nil
		if info.Held || info.Waiters > 0 {
			infos = append(infos, info)
		}
	}
	return infos, nil
}

// notOurs: the user may not read this key, or it, or what stands beside it, is of another type: SCAN finds them all.
func notOurs(err error) bool {
	return wire.Says(err, "WRONGTYPE") || wire.Says(err, "NOPERM") && strings.Contains(err.Error(), " key")
}

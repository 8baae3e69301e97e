// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/hasplock/hasp/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// page is how many keys of etcd a List reads at once.
const page = 500

// lefts looks up how long leases last, each once.
type lefts struct {
	d    *Driver
	now  time.Time
	left map[clientv3.LeaseID]time.Duration
}

func (d *Driver) lefts() *lefts {
	return &lefts{d: d, now: time.Now(), left: make(map[clientv3.LeaseID]time.Duration)}
}

func (l *lefts) of(ctx context.Context, e *entry) (time.Duration, error) {
	left, ok := l.left[e.lease]
	if !ok {
		var err error
		if left, err = l.d.remaining(ctx, e.lease, l.now); err != nil {
			return 0, err
		}
		left = max(left, 0).Truncate(time.Second) // as etcd says it of others' leases
		l.left[e.lease] = left
	}
	return left, nil
}

// opens is when a waiter that is the first in the queue may have the key if no holder renews
// its lease; soon again when that cannot be said.
func (d *Driver) opens(ctx context.Context, v *view, own *entry) time.Duration {
	const most = 16 // leases of other drivers: each is a request
	l := d.lefts()
	hs := v.holders()
	left := make(map[*entry]time.Duration)
	for _, e := range hs {
		if len(l.left) == most {
			break
		}
		var err error
		if left[e], err = l.of(ctx, e); err != nil {
			return time.Second
		}
	}
	slices.SortStableFunc(hs, func(a, b *entry) int { return int(min(max(left[a]-left[b], -1), 1)) })
	for i, e := range hs {
		if admits(hs[i+1:], own.mode(), own.limit) {
			return max(left[e], soon)
		}
	}
	return soon
}

// Inspect implements [driver.Driver]. Since is not known to etcd, and Left only in whole seconds.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := d.valid(driver.CheckKey(key)); err != nil {
		return driver.Info{}, err
	}
	n := names{root: d.root(key)}
	got, err := d.client.Get(clientv3.WithRequireLeader(ctx), n.from(converted), clientv3.WithRange(n.to(writes)))
	if err != nil {
		return driver.Info{}, err
	}
	v, err := d.look(got.Header.Revision, got.Kvs)
	if err != nil {
		return driver.Info{}, err
	}
	info, err := v.info(ctx, key, d.lefts(), true)
	info.LookCommands = []string{"get --prefix " + strconv.Quote(n.root)}
	return info, err
}

// info describes a lock.
func (v *view) info(ctx context.Context, key string, l *lefts, all bool) (driver.Info, error) {
	info := driver.Info{Key: key}
	for _, e := range v.entries {
		if !e.held() {
			if info.Waiters++; all {
				info.Queue = append(info.Queue, e.holder())
			}
			continue
		}
		if info.Leases++; !all && info.Held {
			continue
		}
		left, err := l.of(ctx, e)
		if err != nil {
			return info, err
		}
		lease := driver.Holding{Holder: e.holder(), Fence: e.fence(), Left: left}
		if !info.Held {
			info.Held, info.Holder, info.Fence, info.Left = true, lease.Holder, lease.Fence, lease.Left
		}
		if all {
			info.Holders = append(info.Holders, lease)
		}
	}
	return info, nil
}

// List implements [driver.Driver]. It reads pages of 500 keys of etcd; a lock that changes
// meanwhile is listed as it was on one of them, or partly on two. A lock with a record that this
// version cannot read is listed as a foreign client's.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := d.valid(nil); err != nil {
			yield(driver.Info{}, err)
			return
		}
		l := &listing{d: d, lefts: d.lefts(), yield: yield}
		from := d.prefix + escape(prefix)
		end := clientv3.GetPrefixRangeEnd(from)
		for more := true; more; {
			got, err := d.client.Get(clientv3.WithRequireLeader(ctx), from, clientv3.WithRange(end), clientv3.WithLimit(page))
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			for _, kv := range got.Kvs {
				if !l.add(ctx, kv) {
					return
				}
				from = string(kv.Key) + "\x00"
			}
			more = got.More && len(got.Kvs) > 0
		}
		l.flush(ctx)
	}
}

// listing collects the keys of one lock after another.
type listing struct {
	d     *Driver
	lefts *lefts
	yield func(driver.Info, error) bool
	key   string
	kvs   []*mvccpb.KeyValue
}

// add takes the next key of etcd. What is not of a lock is none of ours.
func (l *listing) add(ctx context.Context, kv *mvccpb.KeyValue) (more bool) {
	key, class, id, ok := l.d.split(string(kv.Key))
	if !ok || class < converted || class > writes || len(id) != idLen {
		return true
	}
	if key != l.key && !l.flush(ctx) {
		return false
	}
	l.key, l.kvs = key, append(l.kvs, kv)
	return true
}

// flush yields the lock of the collected keys, unless only a mark is left of it.
func (l *listing) flush(ctx context.Context) (more bool) {
	if len(l.kvs) == 0 {
		return true
	}
	v, err := l.d.look(0, l.kvs)
	l.kvs = nil
	var later *LayoutError
	switch {
	case errors.As(err, &later):
		return l.yield(driver.Unreadable(l.key, fmt.Sprintf("a newer hasp, layout %d", later.Layout)), nil)
	case err != nil:
		return l.yield(driver.Unreadable(l.key, "no record of this version of hasp"), nil)
	case len(v.entries) == 0:
		return true
	}
	info, err := v.info(ctx, l.key, l.lefts, false)
	return l.yield(info, err) && err == nil
}

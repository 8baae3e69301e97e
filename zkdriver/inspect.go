// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// Inspect implements [driver.Driver]. What is left of a lease is not known: it lasts for as long as its session does, and its
// owner's process renews it.
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Info, error) {
	if err := d.valid(driver.CheckKey(key)); err != nil {
		return driver.Info{}, err
	}
	s, err := d.c.session(ctx)
	if err != nil {
		return driver.Info{}, err
	}
	dir := d.dir(key)
	info := driver.Info{Key: key, ByHand: []string{"ls " + dir, "stat " + dir}}
	q, err := d.read(ctx, s, dir)
	if err != nil {
		return driver.Info{}, err
	}
	var left recipe.Queue
	var read []*zk.Call
	for some := range slices.Chunk(q, together) {
		calls := gets(dir, some)
		if err := s.Do(ctx, calls...); err != nil {
			return driver.Info{}, err
		}
		for i, get := range calls {
			if absent(get.Err) {
				continue // it has ended since
			} else if get.Err != nil {
				return driver.Info{}, get.Err
			}
			left, read = append(left, some[i]), append(read, get)
		}
	}
	describe(&info, left, read)
	return info, nil
}

// describe fills in the holders of a key and the waiters.
func describe(info *driver.Info, q recipe.Queue, gets []*zk.Call) {
	holds := q.Holders()
	for i, n := range q {
		h := holder(n, gets[i].Data)
		if i >= holds {
			info.Queue = append(info.Queue, h)
			continue
		}
		info.Holders = append(info.Holders, driver.Holding{Holder: h, Fence: fenceIn(n, gets[i])})
	}
	slices.SortStableFunc(info.Holders, func(a, b driver.Holding) int { return cmp.Compare(a.Fence, b.Fence) }) // in the order of the grants
	info.Holds, info.Waiters, info.Held = holds, len(q)-holds, holds > 0
	if info.Held {
		info.Holder, info.Fence = info.Holders[0].Holder, info.Holders[0].Fence
	}
}

// holder describes the owner of a node.
func holder(n recipe.Node, data []byte) driver.Holder {
	h := driver.Holder{Mode: n.Mode(), Owner: n.Owner, Foreign: n.Foreign(), Limit: n.Limit, Slot: n.Slot}
	if h.Foreign {
		h.Label = string(data[:min(len(data), driver.MaxLabel)])
	} else {
		h.Label = recipe.Decode(data).Label
	}
	return h
}

// fenceIn is the fence of a node that was read; 0 for another program's, and a newer hasp's.
func fenceIn(n recipe.Node, get *zk.Call) uint64 {
	if n.Foreign() {
		return 0
	}
	data := recipe.Decode(get.Data)
	if data.Fence != 0 || data.Newer > 0 {
		return data.Fence
	}
	return recipe.FenceOf(get.Stat.Czxid)
}

// List implements [driver.Driver]. It reads the names of all keys at once, and then the keys, some at a time.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := d.valid(nil); err != nil {
			yield(driver.Info{}, err)
			return
		}
		s, err := d.c.session(ctx)
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		keys, err := d.keys(ctx, s, prefix)
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		for some := range slices.Chunk(keys, together) {
			infos, err := d.some(ctx, s, some)
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
		}
	}
}

// keys are those that have a directory, as it is now, or later.
func (d *Driver) keys(ctx context.Context, s *zk.Session, prefix string) (keys []string, err error) {
	root := zk.Children(d.root, nil)
	if err := s.Do(ctx, barrier(d.released()), root); err != nil {
		return nil, err
	}
	if root.Err != nil && !absent(root.Err) {
		return nil, root.Err
	}
	for _, name := range root.Children {
		if key, ok := recipe.DecodeKey(name); ok && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// some reads some keys, and leaves out those with an empty queue.
func (d *Driver) some(ctx context.Context, s *zk.Session, keys []string) (infos []driver.Info, err error) {
	var all, firsts []*zk.Call
	for _, key := range keys {
		all = append(all, lists(d.dir(key), d.folders())...)
	}
	if err := s.Do(ctx, all...); err != nil {
		return nil, err
	}
	var qs []recipe.Queue
	n := len(d.folders())
	for i, key := range keys {
		q, err := queueOf(d.folders(), all[i*n:][:n])
		if err != nil {
			return nil, err
		}
		if len(q) > 0 {
			qs = append(qs, q)
			infos = append(infos, driver.Info{Key: key})
			firsts = append(firsts, zk.Get(d.dir(key)+"/"+q[0].Name))
		}
	}
	if err := s.Do(ctx, firsts...); err != nil {
		return nil, err
	}
	for i, q := range qs {
		info, holds := &infos[i], q.Holders()
		info.Held, info.Holds, info.Waiters = holds > 0, holds, len(q)-holds
		if info.Held {
			info.Holder = holder(q[0], firsts[i].Data)
		}
		if info.Held && firsts[i].Err == nil {
			info.Fence = fenceIn(q[0], firsts[i])
		}
	}
	return infos, nil
}

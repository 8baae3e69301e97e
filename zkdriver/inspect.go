// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
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
	info := driver.Info{Key: key, LookCommands: []string{"ls " + dir, "stat " + dir}}
	dirs, err := d.directories(ctx, pace{s: s}, []string{key}, barrier(dir))
	if err != nil {
		return driver.Info{}, err
	}
	describe(&info, dirs[0].queue, dirs[0].gets)
	return info, nil
}

// directory is what was read of a key.
type directory struct {
	key   string
	paths []string   // of the folders that its nodes are in; the last is its own
	lists []*zk.Call // of these
	queue recipe.Queue
	gets  []*zk.Call // of the nodes
}

func (dir directory) path() string { return dir.paths[len(dir.paths)-1] }

// directories reads those of keys, and the nodes in them, after some other calls.
func (d *Driver) directories(ctx context.Context, p pace, keys []string, before ...*zk.Call) ([]directory, error) {
	dirs, calls := make([]directory, len(keys)), before
	for i, key := range keys {
		dir := directory{key: key}
		for _, folder := range d.folders() {
			dir.paths = append(dir.paths, strings.TrimSuffix(d.dir(key)+"/"+folder, "/"))
		}
		if d.layout == Semaphore {
			dir.paths = append(dir.paths, d.dir(key))
		}
		for _, path := range dir.paths {
			dir.lists = append(dir.lists, zk.Children(path, nil))
		}
		dirs[i], calls = dir, append(calls, dir.lists...)
	}
	if err := p.do(ctx, calls...); err != nil {
		return nil, err
	}
	calls = nil
	for i := range dirs {
		dir := &dirs[i]
		q, err := queueOf(d.folders(), dir.lists[:len(d.folders())])
		if err != nil {
			return nil, about(err, "read", dir.path())
		}
		dir.queue = q
		dir.gets = gets(dir.path(), dir.queue)
		calls = append(calls, dir.gets...)
	}
	if err := p.do(ctx, calls...); err != nil {
		return nil, err
	}
	for i := range dirs {
		if err := dirs[i].settle(); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// settle leaves out the nodes that have ended since.
func (dir *directory) settle() error {
	q, gets := dir.queue, dir.gets
	dir.queue, dir.gets = nil, nil
	for i, get := range gets {
		if absent(get.Err) {
			continue
		} else if get.Err != nil {
			return about(get.Err, "read", dir.path()+"/"+q[i].Name)
		}
		dir.queue, dir.gets = append(dir.queue, q[i]), append(dir.gets, get)
	}
	return nil
}

// pace is how fast the servers are asked for much: some calls at a time, with rests in between.
type pace struct {
	s     *zk.Session
	pause time.Duration // the longest rest; 0: none
}

func (p pace) do(ctx context.Context, calls ...*zk.Call) error {
	for some := range slices.Chunk(calls, together) {
		begun := time.Now()
		if err := p.s.Do(ctx, some...); err != nil {
			return err
		}
		if p.pause == 0 {
			continue
		}
		if err := operator.Rest(ctx, time.Since(begun), p.pause); err != nil {
			return err
		}
	}
	return nil
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
	info.Leases, info.Waiters, info.Held = holds, len(q)-holds, holds > 0
	if info.Held {
		info.Holder, info.Fence = info.Holders[0].Holder, info.Holders[0].Fence
	}
}

// holder describes the owner of a node.
func holder(n recipe.Node, data []byte) driver.Holder {
	h := driver.Holder{Mode: n.Mode(), Owner: strings.Clone(n.Owner), Foreign: n.Foreign(), Limit: n.Limit, Slot: n.Slot}
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
		info.Held, info.Leases, info.Waiters = holds > 0, holds, len(q)-holds
		if info.Held {
			info.Holder = holder(q[0], firsts[i].Data)
		}
		if info.Held && firsts[i].Err == nil {
			info.Fence = fenceIn(q[0], firsts[i])
		}
	}
	return infos, nil
}

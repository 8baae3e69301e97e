// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

var _ operator.Driver = (*Driver)(nil)

// Operations implements [operator.Driver].
func (d *Driver) Operations() operator.Operations {
	return operator.Operations{Examine: d.Examine, ListLeftovers: d.ListLeftovers, RemoveLeftover: d.RemoveLeftover}
}

// A sweep asks for little at a time, and leaves the server to others for longer than it took.
const (
	sweepKeys  = 50 // keys with directories that are read at once
	sweepPause = 50 * time.Millisecond

	// rest is how long an empty folder that is no container stays empty before it is left over. Of containers, which look the same, the
	// servers delete 10,000 each minute.
	rest = 10 * time.Minute
)

// ListLeftovers yields what is left over of keys; see [operator.Operations]. It reads the names of all keys at once, and then the
// keys, some at a time, with pauses that are longer than the reads. The clock of the ensemble's leader tells live leases from
// others. Without a prefix it also yields marks of released owners, of which it is not known what their keys are.
func (d *Driver) ListLeftovers(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[operator.Leftover, error] {
	return func(yield func(operator.Leftover, error) bool) {
		if err := d.valid(nil); err != nil {
			yield(operator.Leftover{}, err)
			return
		}
		sw := &sweep{d: d, held: held, yield: func(l operator.Leftover) bool { return yield(l, nil) }, rest: rest}
		if err := sw.walk(ctx, prefix); err != nil && !errors.Is(err, errEnough) {
			yield(operator.Leftover{}, err)
		}
	}
}

// errEnough ends a walk of which the caller has seen enough.
var errEnough = errors.New("enough")

// sweep is one walk over what the servers have.
type sweep struct {
	d     *Driver
	pace  pace
	held  func(driver.Info)
	yield func(operator.Leftover) bool
	rest  time.Duration
	now   time.Time // by the leader's clock, when the walk began
	// Nodes say with which write their last child came or went, and not when. But every write up to old is older than rest,
	// by what other nodes say.
	old   int64
	empty []folder
}

// folder is an empty folder, since a write.
type folder struct {
	operator.Leftover
	since int64
}

func (sw *sweep) walk(ctx context.Context, prefix string) error {
	s, err := sw.d.c.session(ctx)
	if err != nil {
		return err
	}
	sw.pace = pace{s, sweepPause}
	keys, err := sw.d.keys(ctx, s, prefix)
	if err != nil {
		return about(err, "read", sw.d.root)
	}
	if len(keys) > 0 {
		if sw.now, err = sw.d.now(ctx, s); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(keys, sweepKeys) {
		dirs, err := sw.d.directories(ctx, sw.pace, some)
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := sw.look(dir); err != nil {
				return err
			}
		}
	}
	for _, f := range sw.empty {
		if f.since <= sw.old && !sw.yield(f.Leftover) {
			return errEnough
		}
	}
	if prefix != "" {
		return nil
	}
	return sw.marks(ctx)
}

// saw notes when two writes were.
func (sw *sweep) saw(s zk.Stat) {
	for zxid, ms := range map[int64]int64{s.Czxid: s.Ctime, s.Mzxid: s.Mtime} {
		if sw.now.Sub(time.UnixMilli(ms)) >= sw.rest {
			sw.old = max(sw.old, zxid)
		}
	}
}

// linger is how long a waiter has been gone before its place is left over.
const linger = time.Minute

// nodes are those that no session ends. hasp writes none: they are copies.
func (dir directory) nodes(now time.Time) (all []operator.Leftover) {
	for i, n := range dir.queue {
		get := dir.gets[i]
		if get.Stat.EphemeralOwner != 0 || n.Newer > 0 || recipe.Decode(get.Data).Newer > 0 {
			continue
		}
		l := operator.Leftover{Key: dir.key, Kind: operator.LeftPlace, Name: dir.path() + "/" + n.Name, Holder: holder(n, get.Data), State: state(get)}
		switch {
		case n.Foreign(): // it may hold the key by now, or soon
			l.Kind = operator.LeftLease
		case dir.queue.Holds(i):
			l.Kind, l.Fence, l.Live = operator.LeftLease, fenceIn(n, get), !quiet(get, now)
		case !quiet(get, now.Add(-linger)):
			continue
		}
		all = append(all, l)
	}
	return all
}

// look yields what is left over of a key, and notes its folders that are empty.
func (sw *sweep) look(dir directory) error {
	for _, get := range dir.gets {
		sw.saw(get.Stat)
	}
	if i := dir.holder(); i >= 0 && sw.held != nil {
		n, get := dir.queue[i], dir.gets[i]
		sw.held(driver.Info{Key: dir.key, Held: true, Holder: holder(n, get.Data), Fence: fenceIn(n, get)})
	}
	for i, list := range dir.lists {
		if list.Err != nil {
			continue
		}
		if sw.saw(list.Stat); len(dir.queue) == 0 && list.Stat.NumChildren == 0 && list.Stat.DataLength == 0 {
			l := operator.Leftover{Key: dir.key, Kind: operator.LeftSidecar, Name: dir.paths[i], State: state(list)}
			sw.empty = append(sw.empty, folder{l, list.Stat.Pzxid})
		}
	}
	for _, l := range dir.nodes(sw.now) {
		if !sw.yield(l) {
			return errEnough
		}
	}
	return nil
}

// holder is the first node that a session has, if it holds the key; else -1.
func (dir directory) holder() int {
	i := slices.IndexFunc(dir.gets, func(get *zk.Call) bool { return get.Stat.EphemeralOwner != 0 })
	if i < dir.queue.Holders() {
		return i
	}
	return -1
}

// marks yields the marks of released owners that no session ends.
func (sw *sweep) marks(ctx context.Context) error {
	list := zk.Children(sw.d.released(), nil)
	if err := sw.pace.do(ctx, list); err != nil || absent(list.Err) {
		return err
	} else if list.Err != nil {
		return about(list.Err, "read", sw.d.released())
	}
	names := slices.DeleteFunc(list.Children, func(name string) bool { return !driver.ValidOwner(name) }) // a digest looks like one
	for some := range slices.Chunk(names, together) {
		var gets []*zk.Call
		for _, name := range some {
			gets = append(gets, zk.Get(sw.d.released()+"/"+name))
		}
		if err := sw.pace.do(ctx, gets...); err != nil {
			return err
		}
		for i, get := range gets {
			if get.Err != nil || get.Stat.EphemeralOwner != 0 || recipe.Decode(get.Data).Newer > 0 {
				continue
			}
			if !sw.yield(operator.Leftover{Kind: operator.LeftSidecar, Name: sw.d.released() + "/" + some[i], State: state(get)}) {
				return errEnough
			}
		}
	}
	return nil
}

// state differs for each node of a name, and after each write to it, and below it.
func state(call *zk.Call) string {
	return fmt.Sprintf("%x %x %x", uint64(call.Stat.Czxid), uint64(call.Stat.Mzxid), uint64(call.Stat.Pzxid))
}

// unreadable is the TTL of a node when its data does not say it: longer than a session of ZooKeeper is by default.
const unreadable = time.Hour

// quiet reports whether a node that no session ends was written longer ago than a lease lasts. If it was a
// lease then it is over: a renewal makes such a node one of its session again.
func quiet(get *zk.Call, now time.Time) bool {
	ttl := recipe.Decode(get.Data).TTL
	if ttl <= 0 {
		ttl = unreadable
	}
	return now.Sub(time.UnixMilli(get.Stat.Mtime)) > ttl
}

// now is the leader's time, by which nodes say when they were written. What is made to know it is gone in the same step.
func (d *Driver) now(ctx context.Context, s *zk.Session) (time.Time, error) {
	path := d.root + "/.now-" + recipe.Digest(fmt.Sprint(s.ID(), time.Now()))
	set := zk.Set(path, nil)
	all := zk.Multi(zk.Create(path, nil, d.c.acl, zk.Ephemeral), set, zk.Delete(path))
	if err := s.Do(ctx, all); err != nil || all.Err != nil {
		return time.Time{}, errors.Join(err, about(all.Err, "make and delete", path))
	}
	return time.UnixMilli(set.Stat.Mtime), nil
}

// RemoveLeftover removes what ListLeftovers found; see [operator.Operations]. All of it is gone at once. Only what no session ends is
// ever deleted, whatever became of its name.
func (d *Driver) RemoveLeftover(ctx context.Context, l operator.Leftover) (stays time.Duration, err error) {
	if err := d.valid(nil); err != nil {
		return 0, err
	}
	n, ok := d.listed(l)
	if !ok {
		return 0, errNotListed
	}
	if l.Live {
		return 0, driver.ErrNotHeld
	}
	s, err := d.c.session(ctx)
	if err != nil {
		return 0, err
	}
	get := zk.Get(l.Name)
	if err := s.Do(ctx, barrier(d.released()), get); err != nil {
		return 0, err
	}
	switch {
	case absent(get.Err):
		return 0, driver.ErrNotHeld
	case get.Err != nil:
		return 0, about(get.Err, "read", l.Name)
	case state(get) != l.State, get.Stat.EphemeralOwner != 0, recipe.Decode(get.Data).Newer > 0:
		return 0, driver.ErrNotHeld
	}
	if l.Kind != operator.LeftSidecar && !n.Foreign() {
		if now, err := d.now(ctx, s); err != nil {
			return 0, err
		} else if !quiet(get, now) {
			return 0, driver.ErrNotHeld
		}
	}
	// An ephemeral node has no children: a child that is made first proves that this one is still none.
	child := l.Name + "/-"
	del := zk.Multi(zk.Create(child, nil, d.c.acl, zk.Persistent), zk.Delete(child), zk.DeleteVersion(l.Name, get.Stat.Version))
	if err := s.Do(ctx, del); err != nil {
		return 0, err
	}
	switch {
	case absent(del.Err), errors.Is(del.Err, zk.ErrEphemeral), errors.Is(del.Err, zk.ErrBadVersion), errors.Is(del.Err, zk.ErrNotEmpty) && l.Kind == operator.LeftSidecar:
		return 0, driver.ErrNotHeld
	}
	return 0, about(del.Err, "delete", l.Name)
}

var errNotListed = errors.New("zookeeper: this was not listed by ListLeftovers of a driver with these options")

// listed reports whether ListLeftovers may have listed it, and which node of a queue it is.
func (d *Driver) listed(l operator.Leftover) (n recipe.Node, ok bool) {
	if l.Key == "" {
		name, below := strings.CutPrefix(l.Name, d.released()+"/")
		return recipe.Node{}, below && driver.ValidOwner(name) && l.Kind == operator.LeftSidecar
	}
	name, below := strings.CutPrefix(l.Name, d.dir(l.Key))
	if driver.CheckKey(l.Key) != nil || !below {
		return recipe.Node{}, false
	}
	if l.Kind == operator.LeftSidecar {
		return recipe.Node{}, name == "" || slices.Contains(d.folders(), strings.TrimPrefix(name, "/"))
	}
	n, ok = recipe.Parse(strings.TrimPrefix(name, "/"))
	return n, ok && (n.Kind >= recipe.Slot) == (d.layout == Semaphore) && n.Newer == 0 && n.Foreign() == l.Foreign() && (l.Kind == operator.LeftLease || l.Kind == operator.LeftPlace && !n.Foreign())
}

// about adds to the refusal of a server what was refused.
func about(err error, what, path string) error {
	if code := zk.Code(0); !errors.As(err, &code) {
		return err
	}
	return fmt.Errorf("%w: to %s %q", err, what, path)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var _ operator.Driver = (*Driver)(nil)

// Operations implements [operator.Driver].
func (d *Driver) Operations() operator.Operations {
	return operator.Operations{Examine: d.Examine, ListLeftovers: d.ListLeftovers, RemoveLeftover: d.RemoveLeftover}
}

// A sweep asks for little at a time, and leaves the servers to others for longer than it took.
const (
	sweepPage  = 500 // keys of etcd that one request reads
	sweepCrowd = 8 * sweepPage
	sweepPause = 50 * time.Millisecond
	sweepLimit = 10 * time.Second // of one request: the client waits for servers that are down without end
)

// ListLeftovers yields what is left over of keys; see [operator.Operations]. It reads all keys of etcd below the
// prefix, in pages, with pauses that are longer than the reads.
func (d *Driver) ListLeftovers(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[operator.Leftover, error] {
	return func(yield func(operator.Leftover, error) bool) {
		if err := d.valid(nil); err != nil {
			yield(operator.Leftover{}, err)
			return
		}
		s := &sweep{d: d, held: held, yield: yield}
		more, err := s.walk(ctx, newStride(d.prefix+escape(prefix), sweepPage, sweepCrowd))
		if more && err == nil {
			more, err = s.settle(ctx)
		}
		if more && err == nil {
			err = s.later
		}
		if err != nil {
			yield(operator.Leftover{}, err)
		}
	}
}

// sweep is one walk over what etcd has. It collects the keys of one lock after another.
type sweep struct {
	d     *Driver
	held  func(driver.Info)
	yield func(operator.Leftover, error) bool
	lefts *lefts // of this page
	key   string
	kvs   []*mvccpb.KeyValue
	later error // what a newer hasp wrote is skipped
}

// walk reads page after page, and says whether to go on.
func (s *sweep) walk(ctx context.Context, w *stride) (more bool, err error) {
	for !w.over {
		from, end := w.from, w.end()
		got, err := paced(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return s.d.client.Get(clientv3.WithRequireLeader(ctx), from, clientv3.WithRange(end), clientv3.WithLimit(int64(w.page)))
		})
		if err != nil {
			return false, s.d.needing(err, "read the keys from", from)
		}
		s.lefts = s.d.lefts()
		for _, kv := range got.Kvs {
			if more, err := s.add(ctx, kv); err != nil || !more {
				return false, err
			}
		}
		w.next(end, got)
	}
	return true, nil
}

// paced returns what f does, after a rest.
func paced[T any](ctx context.Context, f func(context.Context) (T, error)) (v T, err error) {
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	if v, err = f(limited); err != nil {
		return v, err
	}
	return v, operator.Rest(ctx, time.Since(begun), sweepPause)
}

// add takes the next key of etcd. What is not of a lock is none of ours.
func (s *sweep) add(ctx context.Context, kv *mvccpb.KeyValue) (more bool, err error) {
	key, rest, ok := s.d.below(string(kv.Key))
	if inTheWay := rest >= string(converted) && rest < string(writes+1); !ok || !inTheWay && s.d.remnant(kv) != tombRemnant {
		return true, nil
	}
	if key != s.key {
		if more, err := s.settle(ctx); err != nil || !more {
			return false, err
		}
	}
	s.key, s.kvs = key, append(s.kvs, kv)
	return true, nil
}

// settle yields the leftovers of the lock of the collected keys, and passes the lock on when it is held.
func (s *sweep) settle(ctx context.Context) (more bool, err error) {
	kvs, ours := s.kvs, make([]*mvccpb.KeyValue, 0, len(s.kvs))
	s.kvs = nil
	for _, kv := range kvs {
		switch remnant := s.d.remnant(kv); {
		case remnant == newerRemnant:
			s.later = &LayoutError{string(kv.Key), later(kv.Value)}
		case remnant != foreignRemnant && remnant != tombRemnant:
			ours = append(ours, kv)
		case kv.Lease == 0 && !s.yield(s.d.leftover(s.key, kv), nil):
			return false, nil
		}
	}
	v, err := s.d.look(0, ours)
	if err != nil {
		return false, err
	}
	if err := s.passOn(ctx, v); err != nil {
		return false, err
	}
	for _, kv := range ours {
		remnant := s.d.remnant(kv)
		if kv.Lease != 0 || remnant == markRemnant && len(v.entries) > 0 { // the next holder takes the mark over
			continue
		}
		l := s.d.leftover(s.key, kv)
		if remnant != markRemnant {
			f, err := paced(ctx, func(ctx context.Context) (fate, error) { return s.d.fate(ctx, kv) })
			if err != nil {
				return false, err
			}
			if l.Live = f.is == stands; l.Live && l.Kind == operator.LeftPlace {
				continue // its waiter puts it on a lease again, or its claim
			}
		}
		if !s.yield(l, nil) {
			return false, nil
		}
	}
	return true, nil
}

// passOn calls held for a lock of which a lease expires.
func (s *sweep) passOn(ctx context.Context, v *view) error {
	if s.held == nil {
		return nil
	}
	for _, e := range v.entries {
		if !e.held() || e.lease == 0 {
			continue
		}
		left, err := paced(ctx, func(ctx context.Context) (time.Duration, error) { return s.lefts.of(ctx, e) })
		if err != nil {
			return s.d.needing(err, "read what is on the lease of", e.id)
		}
		s.held(driver.Info{Key: s.key, Held: true, Holder: e.holder(), Fence: e.fence(), Left: left})
		return nil
	}
	return nil
}

// remnant is what a key of etcd below a lock is.
type remnant int

const (
	foreignRemnant remnant = iota // it is in the lock's way, and not understood
	entryRemnant
	markRemnant
	tombRemnant  // of an owner that was released
	newerRemnant // a newer hasp knows what it is
)

func (d *Driver) remnant(kv *mvccpb.KeyValue) remnant {
	_, class, id, ok := d.split(string(kv.Key))
	switch {
	case later(kv.Value) > 0:
		return newerRemnant
	case !ok || len(id) != idLen:
		return foreignRemnant
	}
	switch class {
	case released:
		return tombRemnant
	case unfinished:
		return markRemnant
	}
	if _, ok := d.entryOf(kv); ok {
		return entryRemnant
	}
	return foreignRemnant
}

// leftover describes a key of etcd that has no lease.
func (d *Driver) leftover(key string, kv *mvccpb.KeyValue) operator.Leftover {
	l := operator.Leftover{Key: key, Kind: operator.LeftSidecar, Name: string(kv.Key), State: strconv.FormatInt(kv.ModRevision, 10)}
	switch d.remnant(kv) {
	case foreignRemnant:
		l.Kind = operator.LeftLease
		l.Holder = driver.Holder{Foreign: true, Label: string(kv.Value[:min(len(kv.Value), driver.MaxLabel)])}
	case entryRemnant:
		e, _ := d.entryOf(kv)
		l.Kind, l.Holder = operator.LeftPlace, e.holder()
		if e.held() {
			l.Kind, l.Fence = operator.LeftLease, e.fence()
		}
	}
	return l
}

// stride is a way through the names of etcd from one to another, in ranges that have few of them: etcd counts all names of
// a range, however few are asked for, and takes no write meanwhile. It is some 100 ns for each.
type stride struct {
	page, crowd int
	from, last  string
	over        bool
	depth, step int // the range ends where the byte before depth of from is larger by step
}

func newStride(prefix string, page, crowd int) *stride {
	const first = "!" // no name that escape writes goes on with less
	return &stride{page: page, crowd: crowd, from: prefix + first, last: clientv3.GetPrefixRangeEnd(prefix), depth: len(prefix) + 1, step: 1}
}

// end is where the next range ends.
func (w *stride) end() string {
	end := []byte(w.from[:w.depth])
	if b := int(end[w.depth-1]) + w.step; b <= '~' {
		end[w.depth-1] = byte(b)
		return min(string(end), w.last)
	}
	return min(clientv3.GetPrefixRangeEnd(string(end[:w.depth-1])), w.last)
}

// next goes on behind what was read. The ranges grow where there is little, and become small where there is much.
func (w *stride) next(end string, got *clientv3.GetResponse) {
	n := len(got.Kvs)
	if !got.More || n == 0 {
		if w.from, w.over = end, end == w.last; len(end) < w.depth {
			w.step = 1
		} else if int(got.Count) < w.page/2 {
			w.step *= 2
		}
		w.depth = len(end)
		return
	}
	first, last := string(got.Kvs[0].Key), string(got.Kvs[n-1].Key)
	if w.from = last + "\x00"; int(got.Count) > w.crowd {
		w.depth, w.step = common(first, last)+1, 1
	}
}

// common is the length of the prefix that two texts share.
func common(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

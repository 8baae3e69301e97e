// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"cmp"
	"slices"

	"github.com/hasplock/hasp/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// turns is how many fences a revision has, for holders that take turns on one grant.
const turns = 1024

// entry is an owner's key: a holder, or a place in the queue.
type entry struct {
	stored
	class byte
	id    string
	at    int64 // the position: the create revision of its first key
	mod   int64
	lease clientv3.LeaseID
}

func (e *entry) mode() driver.Mode {
	if e.class == writes {
		return driver.Exclusive
	}
	return driver.Shared
}

func (e *entry) held() bool { return e.state == holds }

// fence is that of a holder.
func (e *entry) fence() uint64 { return fence(e.at, e.many) }

// fence is the last of n fences of a revision.
func fence(rev int64, n int) uint64 { return uint64(rev)*turns + uint64(n-1) }

// leaves reports whether the end of a holder without EndFinished leaves a mark.
func leaves(class byte, limit int) bool {
	return class == writes || class == slotted || class == converted && limit > 0
}

func (e *entry) holder() driver.Holder {
	h := driver.Holder{Owner: e.id[:driver.OwnerLen], Label: e.label, Mode: e.mode(), Limit: e.limit}
	if e.held() {
		h.Slot = e.slot
	}
	return h
}

// mark is that of an unfinished holder.
type mark struct {
	id     string
	create int64
	lease  clientv3.LeaseID
}

// view is all that etcd has of a lock at one revision: the holders of the key follow from
// the order of the entries, see admitted.
type view struct {
	rev     int64
	entries []*entry // in order of position
	hidden  int      // places that a glance counted only, all of them between the first entry and the next
	marks   []mark
}

// look reads the keys of a lock. With a LayoutError there is a view of the others nevertheless.
func (d *Driver) look(rev int64, kvs []*mvccpb.KeyValue) (*view, error) {
	v := &view{rev: rev}
	var newer error
	for _, kv := range kvs {
		if n := later(kv.Value); n > 0 {
			newer = &LayoutError{string(kv.Key), n}
			continue
		}
		_, class, id, ok := d.split(string(kv.Key))
		if ok && len(id) == idLen && class == unfinished {
			v.marks = append(v.marks, mark{id, kv.CreateRevision, clientv3.LeaseID(kv.Lease)})
			continue
		}
		e, ok := d.entryOf(kv)
		if !ok {
			return nil, &DataError{string(kv.Key)}
		}
		v.entries = append(v.entries, e)
	}
	slices.SortFunc(v.entries, func(a, b *entry) int { return cmp.Compare(a.at, b.at) })
	return v, newer
}

// entryOf reads an owner's key. ok is false for what is none.
func (d *Driver) entryOf(kv *mvccpb.KeyValue) (e *entry, ok bool) {
	_, class, id, ok := d.split(string(kv.Key))
	if !ok || len(id) != idLen || class != converted && class != reads && class != slotted && class != writes {
		return nil, false
	}
	s, ok := parse(string(kv.Value))
	return &entry{stored: s, class: class, id: id, at: cmp.Or(s.rev, kv.CreateRevision), mod: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease)}, ok
}

// index is the position of an owner among the entries, -1 when it has none.
func (v *view) index(id string) int {
	return slices.IndexFunc(v.entries, func(e *entry) bool { return e.id == id })
}

func (v *view) find(id string) *entry {
	if i := v.index(id); i >= 0 {
		return v.entries[i]
	}
	return nil
}

// admits reports whether one more owner can have the key beside all before it.
//
// It needs no compare-and-set: later owners stand behind it, and those that leave only make room. So an
// owner that was admitted once, at any revision, is admitted for as long as its own key stands.
func admits(before []*entry, mode driver.Mode, limit int) bool {
	if mode == driver.Exclusive {
		return len(before) == 0
	}
	for _, e := range before {
		if e.mode() == driver.Exclusive {
			return false
		}
		if e.limit > 0 && (limit == 0 || e.limit < limit) {
			limit = e.limit
		}
	}
	return limit == 0 || len(before) < limit
}

// admitted reports whether the entry i may have the key.
func (v *view) admitted(i int) bool {
	e := v.entries[i]
	return admits(v.entries[:i], e.mode(), e.limit)
}

// ahead counts the places before a position.
func (v *view) ahead(i int) (n int) {
	n = v.hidden
	for _, e := range v.entries[:i] {
		if !e.held() {
			n++
		}
	}
	return n
}

func (v *view) holders() (hs []*entry) {
	for _, e := range v.entries {
		if e.held() {
			hs = append(hs, e)
		}
	}
	return hs
}

// orphans are the marks of holders that are gone.
func (v *view) orphans() (ms []mark) {
	for _, m := range v.marks {
		if e := v.find(m.id); e == nil || !e.held() {
			ms = append(ms, m)
		}
	}
	return ms
}

// slot is the smallest number that no holder with a Limit has.
func (v *view) slot() int {
	taken := make(map[int]bool)
	for _, e := range v.entries {
		if e.held() && e.limit > 0 {
			taken[e.slot] = true
		}
	}
	for i := 0; ; i++ {
		if !taken[i] {
			return i
		}
	}
}

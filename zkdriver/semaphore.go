// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// The folders of a semaphore, and how names end there.
const (
	locks  = "locks"
	leases = "leases"

	lockMarker  = "lock-"
	leaseMarker = "lease-"
)

// What of a name in the folder of locks says how its owner wants the key; a number is a limit.
const (
	fieldFull           = "X"
	fieldExclusive      = "x"
	fieldExclusiveBrief = "y"
	fieldShared         = "s"
	fieldSharedBrief    = "t"
)

// parseIn understands a name in a folder of a semaphore.
func parseIn(folder, name string) (n node, ok bool) {
	n, marker := node{kind: kindWait}, lockMarker
	if folder == leases {
		n, marker = node{kind: kindSlot}, leaseMarker
	}
	n.name = folder + "/" + name
	at := strings.LastIndex(name, marker)
	if at < 0 {
		return node{}, false
	}
	seq, err := strconv.ParseInt(name[at+len(marker):], 10, 32)
	if err != nil {
		return node{}, false
	}
	n.seq = int32(seq)
	if field, ok := n.made(name[:at]); !ok || !n.wants(field) {
		n = node{kind: n.kind, name: n.name, seq: n.seq, newer: newer(field)}
	}
	return n, true
}

// wants understands the field of a name, which is one of ours.
func (n *node) wants(field string) bool {
	var err error
	switch {
	case n.kind == kindSlot:
		slot, limit, _ := strings.Cut(field, ".")
		if n.slot, err = strconv.Atoi(slot); err == nil {
			n.limit, err = strconv.Atoi(limit)
		}
		return err == nil
	case field == fieldFull:
		n.kind = kindFull
	case field == fieldExclusive, field == fieldExclusiveBrief:
	case strings.HasPrefix(field, fieldShared), strings.HasPrefix(field, fieldSharedBrief):
		n.limit, err = strconv.Atoi(field[1:])
		n.brief = field[:1] == fieldSharedBrief
		return err == nil
	default:
		return false
	}
	n.exclusive, n.brief = true, field == fieldExclusiveBrief
	return true
}

// sub is the folder of a node with its slash, or "".
func (n node) sub() string {
	if i := strings.IndexByte(n.name, '/'); i >= 0 {
		return n.name[:i+1]
	}
	return ""
}

// marker is the part of the node's name between its maker and its number.
func (n node) marker() string {
	switch n.kind {
	case kindSlot:
		return fmt.Sprintf("%d.%d-%s", n.slot, n.limit, leaseMarker)
	case kindFull:
		return fieldFull + "-" + lockMarker
	case kindWait:
		return n.want.field() + "-" + lockMarker
	}
	return markers[n.kind]
}

func (w want) field() string {
	switch {
	case w.exclusive && w.brief:
		return fieldExclusiveBrief
	case w.exclusive:
		return fieldExclusive
	case w.brief:
		return fieldSharedBrief + strconv.Itoa(w.limit)
	}
	return fieldShared + strconv.Itoa(w.limit)
}

// room reports whether a place at i can be granted the key as it wants: beside the holders, and all that wait before it and could
// enter first. Those that leave at once do not count.
func (q queue) room(i int, w want) bool {
	h := q.holders()
	if w.exclusive {
		return h == 0 && i == 0
	}
	n, least := h, w.limit
	for j, o := range q[:i] {
		switch {
		case o.kind == kindFull, o.kind == kindWait && o.foreign():
			return false
		case j >= h && o.brief:
			continue
		case j >= h && o.exclusive:
			return false
		case j >= h:
			n++
		}
		if o.limit > 0 && (least == 0 || o.limit < least) {
			least = o.limit
		}
	}
	return least == 0 || n < least
}

// slot is the smallest that no holder has.
func (q queue) slot(limit int) int {
	for slot := 0; limit > 0; slot++ {
		if !slices.ContainsFunc(q, func(n node) bool { return n.kind == kindSlot && !n.foreign() && n.limit > 0 && n.slot == slot }) {
			return slot
		}
	}
	return 0
}

// before is the node, or the folder, that the place at i waits for to change.
func (q queue) before(i int) string {
	if q[i].kind < kindSlot {
		return q[q.blocker(i, q[i].kind)].name
	}
	if !q[i].exclusive {
		for j := i - 1; j >= 0; j-- {
			if n := q[j]; n.kind == kindFull || n.kind == kindWait && (n.exclusive || n.foreign()) {
				return n.name // all that share the key enter behind it
			}
		}
	}
	if i > 0 && q[i-1].kind != kindSlot {
		return q[i-1].name
	}
	return leases
}

// same reports whether the leases are those among the names in their folder.
func (q queue) same(names []string) bool {
	more := 0
	for _, name := range names {
		if l, ok := parseIn(leases, name); ok {
			if more++; q.named(l.name) < 0 {
				return false
			}
		}
	}
	for _, n := range q {
		if n.kind == kindSlot {
			more--
		}
	}
	return more == 0
}

// view is what an attempt on a semaphore sees. Everything that is decided by it is done only if nothing of
// ours has changed since, which the version of the folder of locks shows; programs of Java change something only while they
// are the first in it.
type view struct {
	q        queue
	version  int32
	noLeases bool
}

func viewOf(calls []*zk.Call) (v view, err error) {
	v.q, err = queueOf([]string{locks, leases}, calls)
	v.version, v.noLeases = calls[0].Stat.Version, absent(calls[1].Err)
	return v, err
}

// semaphore asks once, and is nil when it has to look again.
func (a *attempt) semaphore() (*driver.Result, error) {
	tomb, calls := zk.Exists(a.d.tomb(a.r.Claim)), lists(a.e.dir, a.e.folders)
	all := append([]*zk.Call{tomb}, calls...)
	name, maybe := a.state()
	if a.sure = a.sure || maybe || a.r.Convert; a.sure {
		all = append([]*zk.Call{barrier(a.e.dir)}, all...)
	}
	if err := a.do(all...); err != nil {
		return nil, err
	}
	v, err := viewOf(calls)
	if err != nil {
		return nil, err
	}
	i := v.q.of(a.e.mark)
	if err := v.q.newer(a.e.dir); err != nil && i < 0 {
		return nil, err
	}
	switch {
	case name != "" && v.q.named(name) < 0 && i < 0:
		a.d.c.forget(a.e, true) // it was broken; ask anew
		return nil, nil
	case i < 0 && tomb.Err == nil:
		return a.released(v.q)
	case a.r.Convert && (i < 0 || v.q[i].kind == kindWait), i >= 0 && !a.r.Convert && v.q[i].mode() != a.r.Mode:
		return a.refuse(v.q, max(i, 0))
	case i >= 0 && name != v.q[i].name:
		return nil, a.move(v.q[i], v.q[i].marker())
	case i >= 0 && v.q[i].kind == kindWait:
		return a.enter(v, i)
	case i >= 0 && a.r.Convert && v.q[i].kind == kindFull:
		return a.share(v, i)
	case i >= 0:
		return a.prove(v.q[i])
	}
	switch {
	case a.r.Queue || v.q.room(len(v.q), a.want()):
		return a.line()
	case a.sure:
		return a.refuse(v.q, len(v.q))
	}
	a.sure = true
	return nil, nil
}

func (a *attempt) want() want {
	return want{exclusive: a.r.Mode == driver.Exclusive, limit: a.r.Limit, brief: !a.r.Queue}
}

// line makes a place in the queue, and takes it as far as it goes.
func (a *attempt) line() (*driver.Result, error) {
	n := node{kind: kindWait, want: a.want()}
	prefix := locks + "/" + nameOf(a.e.mark, a.s.ID(), n.marker())
	data := content{ttl: a.r.TTL, label: a.r.Label}
	made, tomb, calls := zk.Create(a.path(prefix), data.encode(), a.d.c.acl, zk.EphemeralSequential), zk.Exists(a.d.tomb(a.r.Claim)), lists(a.e.dir, a.e.folders)
	if ok, err := a.create(locks, made, append(calls, tomb)...); !ok || err != nil {
		return nil, err
	}
	n, _ = parseIn(locks, made.Path[len(a.e.dir)+len(locks)+2:])
	data.fence = fenceOf(made.Stat.Czxid)
	a.d.c.found(a.e, a.s, n, data)
	v, err := viewOf(calls)
	if err != nil {
		return nil, err
	}
	i := v.q.named(n.name)
	switch first := v.q.of(a.e.mark); {
	case tomb.Err == nil:
		if err := a.undo(n); err != nil {
			return nil, err
		}
		return a.released(nil)
	case i < 0:
		a.d.c.forget(a.e, false)
		return nil, nil
	case first != i: // a copy of this request was faster
		return nil, a.undo(n)
	}
	return a.enter(v, i)
}

// enter grants the key to the place at i, if there is room.
func (a *attempt) enter(v view, i int) (*driver.Result, error) {
	place := v.q[i]
	if !v.q.room(i, place.want) {
		if a.r.Queue && !place.brief {
			return a.wait(v.q, i)
		}
		if place.brief {
			if err := a.undo(place); err != nil || a.r.Queue {
				return nil, err // it joins
			}
		}
		return a.refuse(v.q, i)
	}
	to := node{kind: kindSlot, want: want{limit: place.limit}, slot: v.q.slot(place.limit)}
	if place.exclusive {
		to = node{kind: kindFull, want: want{exclusive: true}}
	}
	return a.become(v, place, to, 0)
}

// become makes a place a hold, or one kind of hold another, in one step. fence is the one to keep, 0: a new one.
func (a *attempt) become(v view, from, to node, fence uint64) (*driver.Result, error) {
	c := a.d.c
	data := content{ttl: a.r.TTL, fence: fence, label: a.r.Label}
	folder := leases
	if to.kind == kindFull {
		folder = locks
	}
	base := numbered(nameOf(a.e.mark, a.s.ID(), to.marker()), from.seq)
	path := a.path(folder + "/" + base)
	parts := []*zk.Call{zk.SetVersion(a.path(locks), nil, v.version), zk.Delete(a.path(from.name)), zk.Create(path, data.encode(), c.acl, zk.Ephemeral)}
	if first := v.q[v.q.holders():]; len(first) > 0 && first[0].name != from.name && from.kind == kindWait {
		parts = append(parts, zk.Check(a.path(first[0].name))) // as long as one of ours is the first, no program of Java enters
	}
	if to.kind == kindSlot && v.noLeases {
		parts = append([]*zk.Call{zk.Create(a.path(leases), nil, c.acl, zk.Container)}, parts...)
	}
	multi, made := zk.Multi(parts...), zk.Exists(path)
	c.leave(a.e, true)
	defer c.leave(a.e, false)
	if err := a.do(multi, made); err != nil {
		c.unnamed(a.e)
		return nil, err
	}
	switch {
	case absent(multi.Err), errors.Is(multi.Err, zk.ErrBadVersion), errors.Is(multi.Err, zk.ErrNodeExists):
		return nil, nil // overtaken
	case multi.Err != nil:
		return nil, multi.Err
	case made.Err != nil:
		c.unnamed(a.e)
		return nil, nil // it was broken at once
	}
	n, _ := parseIn(folder, base)
	if data.fence == 0 {
		data.fence = fenceOf(made.Stat.Czxid)
	}
	c.found(a.e, a.s, n, data)
	return a.grant(n)
}

// share makes the one holder of all leases a holder of one.
func (a *attempt) share(v view, i int) (*driver.Result, error) {
	a.d.c.mu.Lock()
	fence := a.e.fence
	a.d.c.mu.Unlock()
	if a.r.Fence > fence {
		return a.refuse(v.q, i)
	}
	a.moved = true
	return a.become(v, v.q[i], node{kind: kindSlot, want: want{limit: a.r.Limit}}, fence)
}

// prove writes to the node of a holder, and grants what stands.
func (a *attempt) prove(n node) (*driver.Result, error) {
	a.d.c.mu.Lock()
	data := content{ttl: max(a.r.TTL, a.e.ttl), fence: a.e.fence, label: a.r.Label}
	a.d.c.mu.Unlock()
	set := zk.Set(a.path(n.name), data.encode())
	if err := a.do(set); err != nil || absent(set.Err) {
		return nil, err
	} else if set.Err != nil {
		return nil, set.Err
	}
	return a.grant(n)
}

// keep keeps the place at i.
func (a *attempt) keep(q queue, i int) error {
	if q[i].kind == kindWait && q.room(i, q[i].want) {
		return nil
	}
	_, err := a.wait(q, i)
	return err
}

// stands grants what the owner at i holds.
func (a *attempt) stands(q queue, i int) (*driver.Result, error) {
	if q[i].kind >= kindSlot {
		return a.prove(q[i])
	}
	return a.again(q[i].name)
}

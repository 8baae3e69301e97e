// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// entry is what this session has of one owner: a node, or perhaps one. Conn.mu guards what changes; only
// the goroutine with the token of busy may change the node.
type entry struct {
	place
	mark    mark
	folders []string // of its directory, in which its node may be
	busy    chan struct{}
	refs    int // that have the token or wait for it

	d       *Driver // that was granted it
	sess    *zk.Session
	name    string // of the node, "" when it is not known
	kind    kind
	fence   uint64
	ttl     time.Duration // that the node's data has
	placed  bool          // a request with Queue was refused
	maybe   bool          // a create had no answer
	granted bool
	leaving bool // it is about to be deleted, or moved, by us
	gone    bool // it is being given up
	until   time.Time
	timer   *time.Timer
	watch   *zk.Watch // on the node that it waits for
	watched string    // its name
	own     *zk.Watch // on the node itself
}

// live reports whether the store may have something of it.
func (e *entry) live() bool { return e.name != "" || e.maybe }

// clear forgets the node. The caller holds mu.
func (e *entry) clear() {
	e.sess, e.name, e.fence, e.maybe, e.granted, e.leaving, e.gone = nil, "", 0, false, false, false, false
	e.ttl, e.placed = 0, false
	e.watch, e.watched, e.own = nil, "", nil
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// tell says that a lease is over, though no caller here released it. The caller holds mu.
func (e *entry) tell() {
	if e.d != nil && e.d.lost != nil {
		e.d.lost(e.id, e.fence)
	}
}

func sessionName(s *zk.Session) string { return fmt.Sprintf("%016x", uint64(s.ID())) }

// lock returns the entry of an owner, which the caller has for itself until unlock.
func (c *Conn) lock(ctx context.Context, p place, m mark, folders []string) (*entry, error) {
	c.mu.Lock()
	e := c.entries[p]
	if e == nil {
		e = &entry{place: p, mark: m, folders: folders, busy: make(chan struct{}, 1)}
		c.entries[p] = e
	}
	e.refs++
	c.mu.Unlock()
	select {
	case e.busy <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unref(e)
		return nil, ctx.Err()
	}
}

func (c *Conn) unlock(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	<-e.busy
	c.unref(e)
}

// unref forgets an entry that no caller needs. The caller holds mu.
func (c *Conn) unref(e *entry) {
	e.refs--
	c.drop(e)
}

func (c *Conn) drop(e *entry) {
	if e.refs == 0 && !e.live() && c.entries[e.place] == e {
		delete(c.entries, e.place)
	}
}

// over reports whether a session has ended.
func over(s *zk.Session) bool {
	select {
	case <-s.Over():
		return true
	default:
		return false
	}
}

// begin notes that a node may be made, which is given up at a time unless that is put off.
func (c *Conn) begin(e *entry, s *zk.Session, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if over(s) {
		return
	}
	was := e.live()
	e.sess, e.maybe = s, true
	if !was || until.After(e.until) {
		c.last(e, until)
	}
}

// found notes the node, that it may be used under its name.
func (c *Conn) found(e *entry, s *zk.Session, n node, data content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if over(s) {
		return
	}
	if e.own != nil && e.name != n.name {
		c.zk.Forget(e.own)
		e.own = nil
	}
	e.sess, e.name, e.kind, e.maybe, e.leaving = s, n.name, n.kind, false, false
	e.fence, e.ttl = data.fence, data.ttl
}

// lasts puts off when a lease is given up: to a time, when that is later.
func (c *Conn) lasts(e *entry, name string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.name == name && !e.gone && until.After(e.until) {
		c.last(e, until)
	}
}

// wrote notes the TTL in a node's data.
func (c *Conn) wrote(e *entry, name string, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.name == name {
		e.ttl = max(e.ttl, ttl)
	}
}

// last sets when it is given up. The caller holds mu.
func (c *Conn) last(e *entry, until time.Time) {
	e.until = until
	if e.timer == nil {
		e.timer = time.AfterFunc(time.Until(until), func() { c.ring(e) })
	} else {
		e.timer.Reset(time.Until(until))
	}
}

// held makes a place a lease of a driver until a time, or prolongs a lease: a lease that stood before was another client's.
func (c *Conn) held(e *entry, d *Driver, until time.Time, stood bool) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !e.live() {
		return false
	}
	first = !e.granted && !stood
	if first || until.After(e.until) {
		c.last(e, until)
	}
	e.granted, e.d = true, d
	c.attend(e)
	return first
}

// forget notes that the node does not exist any more.
func (c *Conn) forget(e *entry, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.watch != nil {
		c.zk.Forget(e.watch)
	}
	if e.own != nil {
		c.zk.Forget(e.own)
	}
	if e.granted && told {
		e.tell()
	}
	e.clear()
}

// released notes that the owner has nothing. Where a create had no answer, it is looked for once more after a while.
func (c *Conn) released(e *entry) {
	c.mu.Lock()
	unsure := e.name == "" && e.maybe
	if unsure {
		e.granted, e.placed, e.leaving = false, false, false
		c.last(e, time.Now().Add(tombTime))
	}
	c.mu.Unlock()
	if !unsure {
		c.forget(e, false)
	}
}

// leave notes that the node is about to be deleted by us, or is not.
func (c *Conn) leave(e *entry, leaving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.leaving = leaving
	if !leaving && e.granted {
		c.attend(e)
	}
}

// busyPause is when to look again at what was to be given up while a request about it was under way.
const busyPause = 20 * time.Millisecond

// ring gives up what was not renewed.
func (c *Conn) ring(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !e.live() || e.gone || c.closed || e.timer == nil {
		return
	}
	if left := time.Until(e.until); left > 0 {
		e.timer.Reset(left)
		return
	}
	select {
	case e.busy <- struct{}{}:
	default:
		e.timer.Reset(busyPause)
		return
	}
	e.refs++
	e.gone, e.leaving = true, true
	c.ending = append(c.ending, e)
	c.tidy()
}

// attend watches the node of a lease, to tell the holder when another deletes it. Without a connection it does nothing: linked does it then.
// The caller holds mu.
func (c *Conn) attend(e *entry) {
	if e.d == nil || e.d.lost == nil || e.name == "" || e.own != nil {
		return
	}
	s, name := e.sess, e.name
	w := &zk.Watch{}
	same := func() bool { return e.own == w && e.name == name && e.sess == s }
	w.Fire = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if same() {
			e.own = nil
			if !e.leaving {
				c.attend(e) // whether it is gone, or the connection is
			}
		}
	}
	e.own = w
	call := zk.Children(e.dir+"/"+name, w)
	if s.Start(func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !same() || err == nil && call.Err == nil {
			return
		}
		e.own = nil
		switch {
		case err != nil: // linked does it
		case !absent(call.Err):
			c.attendLater(e)
		case !e.leaving:
			c.missing(e)
		}
	}, call) != nil {
		e.own = nil
	}
}

// attendPause is when to look again at a lease's node that the server did not let us look at.
const attendPause = time.Second

// attendLater looks again after a while, if the lease is the same then. The caller holds mu.
func (c *Conn) attendLater(e *entry) {
	s, name := e.sess, e.name
	time.AfterFunc(attendPause, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.name == name && e.sess == s && !e.leaving {
			c.attend(e)
		}
	})
}

// missing tells the holder that its node is gone, unless another client took it over. The caller holds mu.
func (c *Conn) missing(e *entry) {
	s, name := e.sess, e.name
	calls := lists(e.dir, e.folders)
	_ = s.Start(func(err error) { // unsent: linked looks again
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil || e.sess != s || e.name != name || e.leaving {
			return // linked looks again, or leave does
		}
		q, err := queueOf(e.folders, calls)
		if err != nil {
			c.attendLater(e)
			return
		}
		if i := q.of(e.mark); i < 0 || !q.holds(i) {
			e.tell()
		}
		e.clear()
		c.drop(e)
	}, calls...)
}

// unnamed notes that the node may have its name or another.
func (c *Conn) unnamed(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.sess != nil {
		e.name, e.maybe = "", true
	}
}

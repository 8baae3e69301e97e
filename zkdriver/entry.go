// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// place is an owner at a key's directory.
type place struct {
	dir string
	id  driver.ID
}

// entry is the record of one owner, with what keeps it up to date: a timer and watches. Conn.mu guards what changes; only
// the goroutine with the token of busy may change which node it is.
type entry struct {
	place
	mark    recipe.Mark
	folders []string // of its directory, in which its node may be
	busy    chan struct{}
	refs    int // that have the token or wait for it

	recipe.Record
	d       *Driver   // that was granted it
	enters  bool      // its waiter enters on a handover
	handed  time.Time // when the key was handed to it
	sess    *zk.Session
	timer   *time.Timer
	watch   *zk.Watch // on the node that it waits for
	watched string    // its name
	own     *zk.Watch // on the node itself
}

// path is that of a node of the key.
func (e *entry) path(name string) string { return e.dir + "/" + name }

// lock returns the entry of an owner, which the caller has for itself until unlock.
func (c *Conn) lock(ctx context.Context, p place, m recipe.Mark, folders []string) (*entry, error) {
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
	if e.refs == 0 && !e.Live() && c.entries[e.place] == e {
		delete(c.entries, e.place)
	}
}

// record is what is known of an owner now.
func (c *Conn) record(e *entry) recipe.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.Record
}

// note changes a record, and has it given up when it says so.
func (c *Conn) note(e *entry, change func(*recipe.Record)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&e.Record)
	c.arm(e)
}

// arm sets the timer by which it is given up. The caller holds mu.
func (c *Conn) arm(e *entry) {
	left := time.Until(e.Until)
	switch {
	case !e.Live():
	case e.timer == nil:
		e.timer = time.AfterFunc(left, func() { c.ring(e) })
	default:
		e.timer.Reset(left)
	}
}

// begin notes that a node of a session may be made, which is given up at a time unless that is put off.
func (c *Conn) begin(e *entry, s *zk.Session, until time.Time) {
	c.note(e, func(r *recipe.Record) {
		if !s.Ended() {
			e.sess = s
			r.Begin(until)
		}
	})
}

// found notes the node, that it may be used under its name.
func (c *Conn) found(e *entry, s *zk.Session, n recipe.Node, data recipe.Content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.Ended() {
		return
	}
	if e.own != nil && e.Name != n.Name {
		c.zk.Forget(e.own)
		e.own = nil
	}
	e.sess = s
	e.Find(n, data)
}

// unname notes that the node may have its name or another.
func (c *Conn) unname(e *entry) { c.note(e, (*recipe.Record).Unname) }

// held makes a place a lease of a driver until a time, or prolongs a lease.
func (c *Conn) held(e *entry, d *Driver, until time.Time, stood bool) (first bool, handed time.Time) {
	c.note(e, func(r *recipe.Record) {
		if r.State == recipe.Handed {
			handed = e.handed
		}
		if first = r.Grant(until, stood); r.Live() {
			e.d = d
			c.attend(e)
		}
	})
	return first, handed
}

// claimTime is for how long a handover may be relied on before it is claimed.
const claimTime = 10 * time.Second

// wake has a waiter look again, now that the node before it is gone, or tells it that it has the key. The caller holds mu.
//
// What a server shows may be old, but its owner is here, and had the key at some moment of this wait, when no other did. Only an
// operator can have ended that since: not the servers, as the session is assured, and not this client. The claim finds that out.
func (d *Driver) wake(e *entry, s *zk.Session) {
	c, name, children := d.c, e.Name, zk.Children(e.dir, nil)
	if e.enters && len(c.hints[e.place]) > 0 && s.Start(func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		h := driver.Hint{}
		if err == nil && children.Err == nil && e.sess == s && e.Name == name && recipe.First(children.Children, name) {
			h.Handover = d.hand(e, s)
		}
		c.hint(e.place, h)
	}, children) == nil {
		return
	}
	c.hint(e.place, driver.Hint{})
}

// hand makes a place whose turn has come a lease that its owner may enter. It is zero where a request about the place is under way, which
// looks itself, or where too little is certain. The caller holds mu.
func (d *Driver) hand(e *entry, s *zk.Session) (to driver.Handover) {
	now, full := time.Now(), min(e.TTL, claimTime)
	ttl := min(full, e.Until.Sub(now), s.Assured().Sub(now))
	if e.State != recipe.Place || e.End != recipe.Stays || len(e.busy) > 0 || s.Ended() || ttl < full/2 {
		return to
	}
	e.Hand()
	e.d, e.handed = d, now
	return driver.Handover{Fence: e.Fence, At: d.c.clock(now), TTL: ttl}
}

// clear forgets the node. It tells that a lease is over, unless a request here was to end it. The caller holds mu.
func (c *Conn) clear(e *entry, told bool) {
	c.unwatch(e)
	if e.own != nil {
		c.zk.Forget(e.own)
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	if told && e.State.Leased() {
		c.tell(e)
	}
	e.Record = recipe.Record{}
	e.sess, e.timer, e.own = nil, nil, nil
}

// tell says that a lease is over. The caller holds mu.
func (c *Conn) tell(e *entry) {
	if !c.closed && e.d != nil && e.d.lost != nil {
		e.d.lost(e.id, e.Fence)
	}
}

// unwatch forgets the node that it waits for. The caller holds mu.
func (c *Conn) unwatch(e *entry) {
	if e.watch != nil {
		c.zk.Forget(e.watch)
	}
	e.watch, e.watched = nil, ""
}

// forget notes that the node does not exist any more.
func (c *Conn) forget(e *entry, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear(e, told)
}

// unbegin notes that what begin noted came to nothing: it is as it was before. An earlier create without an answer may be carried out still.
func (c *Conn) unbegin(e *entry, was recipe.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !was.Live() {
		c.clear(e, false)
	}
	if e.Live() { // else its session has ended
		e.Record = was
		c.arm(e)
	}
}

// released notes that the owner has nothing. Where a create had no answer, it is looked for once more after a while.
func (c *Conn) released(e *entry) {
	c.note(e, func(r *recipe.Record) {
		if r.Release(time.Now().Add(tombTime)) {
			c.clear(e, false)
		}
	})
}

// leave notes that the node is about to be deleted by us, and stay that it was not.
func (c *Conn) leave(e *entry) { c.note(e, func(r *recipe.Record) { r.End = recipe.Leaving }) }

func (c *Conn) stay(e *entry) {
	c.note(e, func(r *recipe.Record) {
		r.End = recipe.Stays
		c.attend(e)
	})
}

// busyPause is when to look again at what was to be given up while a request about it was under way.
const busyPause = 20 * time.Millisecond

// ring gives up what was not renewed.
func (c *Conn) ring(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	due, left := e.Due(time.Now())
	if c.closed || e.timer == nil {
		return
	}
	if left > 0 {
		e.timer.Reset(left)
	}
	if !due {
		return
	}
	select {
	case e.busy <- struct{}{}:
	default:
		e.timer.Reset(busyPause)
		return
	}
	e.refs++
	e.End = recipe.Ending
	c.ending = append(c.ending, e)
	c.tidy()
}

// attend watches the node of a lease, to tell the holder when another deletes it. Without a connection it does nothing: linked does it then.
// The caller holds mu.
func (c *Conn) attend(e *entry) {
	if e.State != recipe.Held || e.d == nil || e.d.lost == nil || e.Name == "" || e.own != nil || e.End != recipe.Stays {
		return
	}
	s, name := e.sess, e.Name
	w := &zk.Watch{}
	same := func() bool { return e.own == w && e.Name == name && e.sess == s }
	w.Fire = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if same() {
			e.own = nil
			c.attend(e) // whether it is gone, or the connection is
		}
	}
	e.own = w
	call := zk.Children(e.path(name), w)
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
		case e.End == recipe.Stays:
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
	s, name := e.sess, e.Name
	time.AfterFunc(attendPause, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.Name == name && e.sess == s {
			c.attend(e)
		}
	})
}

// missing tells the holder that its node is gone, unless another client took it over. The caller holds mu.
func (c *Conn) missing(e *entry) {
	s, name := e.sess, e.Name
	calls := lists(e.dir, e.folders)
	_ = s.Start(func(err error) { // unsent: linked looks again
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil || e.sess != s || e.Name != name || e.End != recipe.Stays {
			return // linked looks again, or stay does
		}
		q, err := queueOf(e.folders, calls)
		if err != nil {
			c.attendLater(e)
			return
		}
		i := q.Of(e.mark)
		c.clear(e, i < 0 || !q.Holds(i))
		c.drop(e)
	}, calls...)
}

// together is how many calls are sent at once, at most.
const together = 128

// remove deletes a node of ours after a while.
func (c *Conn) remove(after time.Duration, path string) {
	time.AfterFunc(after, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.trash = append(c.trash, path)
		c.tidy()
	})
}

// tidy gives up what is to be given up, in the background. The caller holds mu.
func (c *Conn) tidy() {
	switch {
	case c.closed || len(c.ending)+len(c.trash) == 0:
	case c.tidying:
		c.again = true
	default:
		c.tidying = true
		c.work.Go(func() {
			for c.tidyOnce() {
				continue
			}
		})
	}
}

// tidyOnce is false when nothing is left to do, or there is no connection: linked begins anew.
//
// It repeats what had no answer. That does no harm: the nodes are this session's own, and their names are never
// given again.
func (c *Conn) tidyOnce() (more bool) {
	s, err := c.session(c.life)
	c.mu.Lock()
	if err != nil || len(c.ending)+len(c.trash) == 0 {
		defer c.mu.Unlock()
		more, c.again = c.again && !c.closed, false
		c.tidying = more
		return more
	}
	es := slices.Clone(c.ending[:min(len(c.ending), together)])
	paths := slices.Clone(c.trash[:min(len(c.trash), together)])
	c.mu.Unlock()
	var calls []*zk.Call
	of := make(map[*entry][]*zk.Call) // what finds an entry's nodes, and then deletes them
	for _, path := range paths {
		calls = append(calls, zk.Delete(path))
	}
	for _, e := range es {
		of[e] = lists(e.dir, e.folders)
		calls = append(append(calls, barrier(e.dir)), of[e]...)
	}
	if s.Do(c.life, calls...) != nil {
		return true
	}
	calls = nil
	for _, e := range es {
		q, err := queueOf(e.folders, of[e])
		if err != nil {
			continue // it stays
		}
		of[e] = nil
		for _, n := range q {
			if n.Mark == e.mark && n.Session == recipe.SessionName(s.ID()) {
				of[e] = append(of[e], zk.Delete(e.path(n.Name)))
			}
		}
		calls = append(calls, of[e]...)
	}
	if s.Do(c.life, calls...) != nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = slices.DeleteFunc(c.ending, func(e *entry) bool { return slices.Contains(es, e) })
	c.trash = slices.DeleteFunc(c.trash, func(path string) bool { return slices.Contains(paths, path) })
	for _, e := range es {
		c.gaveUp(e, slices.ContainsFunc(of[e], func(call *zk.Call) bool { return call.Err != nil && !absent(call.Err) }))
	}
	return true
}

// gaveUp forgets a lease or a place that was given up, or (stays) that could not be deleted: then once more after a while. The caller
// holds mu.
func (c *Conn) gaveUp(e *entry, stays bool) {
	if e.End != recipe.Ending {
		return // its session has ended since
	}
	again := time.Now().Add(tombTime)
	if stays {
		e.End, e.Until = recipe.Stays, again
		c.attend(e)
	} else if done, held := e.GiveUp(again); done {
		c.clear(e, true)
	} else if held {
		c.tell(e)
	}
	c.arm(e)
	<-e.busy
	c.unref(e)
}

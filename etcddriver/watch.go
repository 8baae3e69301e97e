// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// guards is how many own keys are watched, so that a loss is told at once. Of more, renewals
// tell.
const guards = 1000

// waiter is an owner with a Watch under way.
type waiter struct {
	hints map[chan driver.Hint]bool
	key   string             // the first that is watched in etcd for it
	what  string             // all that is; empty: nothing
	end   context.CancelFunc // of that watch
}

// Watch implements [driver.Driver].
//
// What an owner waits for follows from its place: the watch in etcd begins with the answer
// that put it there, and a look says what happened since, so that nothing is missed. A place
// that this driver does not know, since the answer was lost or another process joined, is looked for.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if err := d.valid(c.Check()); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id, ch := c.ID(), make(chan driver.Hint, 1)
	d.mu.Lock()
	w := d.waiters[id]
	if w == nil {
		w = &waiter{hints: make(map[chan driver.Hint]bool)}
		d.waiters[id] = w
		d.watched[id.Key]++
	}
	w.hints[ch] = true
	rec := d.records[id]
	known, held := rec != nil, rec != nil && rec.own.held()
	d.mu.Unlock()
	context.AfterFunc(ctx, func() { d.leave(id, ch) })
	if held {
		return ch, nil
	}
	if err := d.catchUp(ctx, id, classOfMode(c), known); err != nil {
		return nil, err
	}
	return ch, nil
}

// catchUp follows the place that an owner has already. An unknown owner mostly has none,
// and to look for that reads less than the queue.
func (d *Driver) catchUp(ctx context.Context, id driver.ID, class byte, known bool) error {
	n := d.names(id)
	ctx = clientv3.WithRequireLeader(ctx)
	if !known {
		if place, err := d.client.Get(ctx, n.name(class), clientv3.WithCountOnly()); err != nil || place.Count == 0 {
			return err
		}
	}
	got, err := d.client.Get(ctx, n.from(converted), clientv3.WithRange(n.to(writes)))
	if err != nil {
		return err
	}
	v, err := d.look(got.Header.Revision, got.Kvs)
	if err != nil {
		return err
	}
	if own := v.find(n.id); own != nil && !own.held() {
		d.follow(id, v, own)
	}
	return nil
}

// leave ends one Watch.
func (d *Driver) leave(id driver.ID, ch chan driver.Hint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.waiters[id]
	if w == nil {
		return
	}
	if delete(w.hints, ch); len(w.hints) == 0 {
		w.stop()
		delete(d.waiters, id)
		if d.watched[id.Key]--; d.watched[id.Key] == 0 {
			delete(d.watched, id.Key)
		}
	}
}

func (w *waiter) stop() {
	if w.what = ""; w.end != nil {
		w.end()
		w.end = nil
	}
}

// unfollow ends what is watched for an owner that has the key, or left.
func (d *Driver) unfollow(id driver.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiters[id]; w != nil {
		w.stop()
	}
}

// hint has an owner try again.
func (d *Driver) hint(id driver.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiters[id]; w != nil {
		for ch := range w.hints {
			driver.Hint{}.Send(ch)
		}
	}
}

// follow watches what a waiter waits for: the last one before it that it cannot be beside, or,
// where limits count, all that are before it.
func (d *Driver) follow(id driver.ID, v *view, own *entry) {
	before := v.entries[:v.index(own.id)]
	n := names{root: d.root(id.Key)}
	limits := own.limit > 0
	var last *entry
	for _, e := range before {
		limits = limits || e.limit > 0
		if own.mode() == driver.Exclusive || e.mode() == driver.Exclusive {
			last = e
		}
	}
	if own.mode() == driver.Exclusive {
		limits = false
	}
	var what, end string
	switch {
	case limits && !admits(before, own.mode(), own.limit):
		what, end = n.from(converted), n.to(writes)
	case !limits && last != nil:
		n.id = last.id
		what = n.name(last.class)
	default:
		d.hint(id) // nothing is in its way
		return
	}
	d.watch(id, v, own, what, end)
}

// watch begins a watch for a waiter, unless the waiter has the same one.
func (d *Driver) watch(id driver.ID, v *view, own *entry, what, end string) {
	same, there := what, []string{what}
	room := func(string) bool { return true }
	if end != "" {
		before := v.entries[:v.index(own.id)]
		there = nil
		for _, e := range before {
			same += e.id
			there = append(there, names{d.root(id.Key), e.id}.name(e.class))
		}
		room = d.room(before, own)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.waiters[id]
	if w == nil || w.what == same || d.life.Err() != nil {
		return
	}
	w.stop()
	ctx, cancel := context.WithCancel(d.life)
	w.key, w.what, w.end = what, same, cancel
	if !d.proving {
		d.proving = true
		d.goes(d.prove)
	}
	d.goes(func() {
		defer cancel()
		told := d.hear(ctx, what, end, v.rev, there, room)
		d.mu.Lock()
		if now := d.waiters[id]; now == w && w.what == same && ctx.Err() == nil {
			w.what = "" // the next answer begins another one
		}
		d.mu.Unlock()
		if told {
			d.hint(id)
		}
	})
}

// room returns a function that is told the keys that go, and reports when there is room for
// own. A waiter that leaves the queue makes room as a holder does.
func (d *Driver) room(before []*entry, own *entry) func(string) bool {
	before = append([]*entry(nil), before...)
	return func(gone string) bool {
		_, _, id, _ := d.split(gone)
		for i, e := range before {
			if e.id == id {
				before = append(before[:i], before[i+1:]...)
				break
			}
		}
		return admits(before, own.mode(), own.limit)
	}
}

// hear waits until a key goes that was there at a revision, and enough says that this is what was
// waited for. there are the keys of a range that were. It is true also when events may have been missed:
// they were compacted while the connection was away, or the watch ended after it had begun. What cannot
// be watched at all is no news.
func (d *Driver) hear(ctx context.Context, key, end string, rev int64, there []string, enough func(string) bool) bool {
	for range 2 {
		c := d.current()
		if begun, told := d.listen(ctx, c, key, end, rev, there, enough); begun || told || ctx.Err() != nil {
			return (begun || told) && ctx.Err() == nil
		}
		d.abandon(c)                              // its token may be over
		if d.went(ctx, key, end, there, enough) { // and so the client gets another one
			return ctx.Err() == nil
		}
	}
	return false
}

// listen is hear on one channel.
//
// The watch begins now, and a look says what happened before: etcd keeps those that begin in the
// past waiting for up to 100 ms before they get anything.
func (d *Driver) listen(ctx context.Context, c *channel, key, end string, rev int64, there []string, enough func(string) bool) (begun, told bool) {
	opts := []clientv3.OpOption{clientv3.WithFilterPut(), clientv3.WithCreatedNotify()}
	if end != "" {
		opts = append(opts, clientv3.WithRange(end))
	}
	events, cancel := c.events(ctx, d.client, key, opts)
	defer cancel()
	for res := range events {
		switch {
		case res.CompactRevision != 0:
			return begun, true
		case res.Created && !begun && res.Header.Revision > rev && d.went(ctx, key, end, there, enough):
			return begun, true
		}
		begun = begun || res.Created
		for _, ev := range res.Events {
			if ev.Type == clientv3.EventTypeDelete && enough(string(ev.Kv.Key)) {
				return begun, true
			}
		}
	}
	return begun, false
}

// went looks which of the keys are gone, and tells enough. Without an answer it is true.
func (d *Driver) went(ctx context.Context, key, end string, there []string, enough func(string) bool) bool {
	opts := []clientv3.OpOption{clientv3.WithKeysOnly()}
	if end != "" {
		opts = append(opts, clientv3.WithRange(end))
	}
	got, err := d.client.Get(clientv3.WithRequireLeader(ctx), key, opts...)
	if err != nil {
		return true
	}
	left := make(map[string]bool)
	for _, kv := range got.Kvs {
		left[string(kv.Key)] = true
	}
	for _, name := range there {
		if !left[name] && enough(name) {
			return true
		}
	}
	return false
}

// channel is a stream of etcd's client on which watches are. It keeps the token that it was opened with, and its
// connection may die in silence: then it is abandoned, and watches begin anew on another one.
type channel struct {
	ctx context.Context // ends with it
	end context.CancelFunc
	n   int
}

// current is the channel for new watches.
func (d *Driver) current() *channel {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open(0)
}

// open is the current channel, or a new one if that is older than n. d.mu is held.
func (d *Driver) open(n int) *channel {
	if d.channel == nil || d.channel.n < n {
		c := &channel{n: n}
		c.ctx, c.end = context.WithCancel(d.life)
		d.channel = c
	}
	return d.channel
}

// abandon ends a channel, and so all watches on it, which say that they may have missed something.
func (d *Driver) abandon(c *channel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open(c.n + 1)
	c.end()
}

// events begins a watch, which ends with ctx and the channel. The client would leave its stream open for ever if the
// first watch on it was cancelled before etcd has begun it: so that is waited for, for a moment.
func (c *channel) events(ctx context.Context, client *clientv3.Client, key string, opts []clientv3.OpOption) (clientv3.WatchChan, context.CancelFunc) {
	named := metadata.AppendToOutgoingContext(context.WithoutCancel(ctx), "hasp-channel", strconv.Itoa(c.n)) // the client has a stream for each
	watch, cancel := context.WithCancel(clientv3.WithRequireLeader(named))
	begun := make(chan struct{})
	leave := func() {
		select {
		case <-begun:
		case <-time.After(closeTime / 2):
		}
		cancel()
	}
	stop, over := context.AfterFunc(ctx, leave), context.AfterFunc(c.ctx, leave)
	ch := client.Watch(watch, key, opts...)
	close(begun)
	return ch, func() { stop(); over(); cancel() }
}

const (
	// proveEvery is how often a channel with waiters proves that it carries hints.
	proveEvery = 5 * time.Second
	// proveLimit is how long that may take.
	proveLimit = 3 * time.Second
)

// prove begins a watch on the channel now and then, and abandons the channel if that is not confirmed. It ends when
// no waiter is left.
func (d *Driver) prove() {
	for {
		select {
		case <-time.After(proveEvery):
		case <-d.life.Done():
			return
		}
		d.mu.Lock()
		key, c := "", d.open(0)
		for _, w := range d.waiters {
			if key = w.key; w.what != "" {
				break
			}
			key = ""
		}
		d.proving = key != ""
		d.mu.Unlock()
		if key == "" {
			return
		}
		ctx, cancel := context.WithTimeout(d.life, proveLimit)
		events, end := c.events(ctx, d.client, key, []clientv3.OpOption{clientv3.WithFilterPut(), clientv3.WithFilterDelete(), clientv3.WithCreatedNotify()})
		if res := <-events; !res.Created {
			d.abandon(c)
		}
		end()
		cancel()
	}
}

// attend watches the own key of an owner from a revision on: a holder's loss is told, and a
// waiter gets a hint when its place is gone.
func (d *Driver) attend(id driver.ID, rev int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rec := d.records[id]
	if rec == nil || rec.guard != nil || d.guarded >= guards || d.life.Err() != nil {
		return
	}
	if rec.own.held() && d.lost == nil || !rec.own.held() && d.waiters[id] == nil {
		return
	}
	ctx, cancel := context.WithCancel(d.life)
	rec.guard = cancel
	d.guarded++
	n := d.names(id)
	key := n.name(rec.own.class)
	d.goes(func() {
		defer cancel()
		if d.hear(ctx, key, "", rev, []string{key}, func(string) bool { return true }) && ctx.Err() == nil {
			d.gone(ctx, id, n)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if rec := d.records[id]; rec != nil && ctx.Err() == nil {
			d.unguard(rec) // the next renewal watches again
		}
	})
}

// gone looks what became of an owner when its key seems to be gone: another process may have
// converted the lease.
func (d *Driver) gone(ctx context.Context, id driver.ID, n names) {
	got, err := d.client.Get(clientv3.WithRequireLeader(ctx), n.from(converted), clientv3.WithRange(n.to(writes)), clientv3.WithKeysOnly())
	if err != nil {
		return // a renewal will say it
	}
	for _, kv := range got.Kvs {
		if name := string(kv.Key); strings.HasSuffix(name, bar+n.id) && name != n.name(unfinished) {
			return
		}
	}
	d.mu.Lock()
	rec, lost := d.records[id], d.lost
	if rec == nil || ctx.Err() != nil || rec.own.mod > got.Header.Revision { // released, or granted anew meanwhile
		d.mu.Unlock()
		return
	}
	held, fence := rec.own.held(), rec.own.fence()
	d.forget(id)
	d.mu.Unlock()
	d.hint(id)
	if held && lost != nil && d.life.Err() == nil {
		lost(id, fence)
	}
}

// unguard ends the watch of an own key. d.mu is held.
func (d *Driver) unguard(r *record) {
	if r.guard != nil {
		r.guard()
		r.guard = nil
		d.guarded--
	}
}

// guardless is unguard before this driver itself deletes the key.
func (d *Driver) guardless(id driver.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.records[id]; r != nil {
		d.unguard(r)
	}
}

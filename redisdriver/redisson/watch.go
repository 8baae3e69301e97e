// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"slices"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// maxPosts bounds the subscriptions of a Driver in a cluster, where each hash slot
// needs its own. Waiters in further slots poll.
const maxPosts = 32

// posts are the subscriptions of a Driver: one, or in a cluster one for each hash slot
// with waiters.
type posts struct {
	d      *Driver
	mu     sync.Mutex
	open   map[int]*post
	closed bool
}

// post is one connection for subscriptions, and those who wait for a message of it.
type post struct {
	*wire.Inbox
	d       *Driver
	mu      sync.Mutex
	waiting map[string][]*watcher // by channel, the longest first
}

// watcher is one owner who waits.
type watcher struct {
	claim   driver.Claim
	hint    chan struct{}
	signals int // how many it was given
	heeded  int // how many of them before its latest Try that was answered
}

// signal gives a hint. mu of the post is held.
func (w *watcher) signal() {
	w.signals++
	select {
	case w.hint <- struct{}{}:
	default: // one hint is enough
	}
}

// channel is where messages for an owner come: of a fair lock each has its own.
func (d *Driver) channel(c driver.Claim) string {
	channel := d.names(c.Key).channel
	if d.kind == Fair {
		channel += ":" + fieldOf(c.Owner)
	}
	return channel
}

// Watch returns the channel of hints for c.Owner; see [driver.Driver]. It is nil if the
// server does not allow this client to subscribe.
//
// The first Watch opens one connection for subscriptions beside the client's
// pool; it stays until Close.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan struct{}, error) {
	if err := d.valid(c.Key, c.Check()); err != nil {
		return nil, err
	}
	p, err := d.posts.get(d.slotOf(c.Key))
	if p == nil {
		return nil, err
	}
	defer p.Use(-1)
	if ok, err := p.Await(ctx); !ok {
		return nil, err
	}
	channel := d.channel(c)
	if ok, err := p.Join(ctx, channel); !ok {
		return nil, err
	}
	return p.watch(ctx, channel, c), nil
}

// get returns the post for a hash slot, a new one if need be, or nil when there
// are too many.
func (ps *posts) get(slot int) (*post, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return nil, driver.ErrClosed
	}
	if p := ps.open[slot]; p != nil {
		p.Use(1)
		return p, nil
	}
	if len(ps.open) >= maxPosts && !ps.makeRoom() {
		return nil, nil
	}
	d := ps.d
	p := &post{d: d, waiting: map[string][]*watcher{}}
	o := wire.InboxOptions{
		Client: d.rdb, Own: wire.Sidecars + "inbox:" + d.id, Receive: p.receive, News: p.news, Stands: p.stands,
		Muted: d.muted.Store, Classify: d.Classify, Idle: p.unwatched,
	}
	if slot >= 0 {
		o.Own, o.Sharded = wire.Sidecars+"inbox:{"+wire.TagOf(slot)+"}"+d.id, true
	}
	p.Inbox = wire.NewInbox(d.life, o)
	p.Use(1)
	ps.open[slot] = p
	d.running.Go(p.Run)
	return p, nil
}

// makeRoom closes a post that nobody watches.
func (ps *posts) makeRoom() bool {
	for slot, p := range ps.open {
		if p.Use(0) == 0 && p.unwatched() {
			delete(ps.open, slot)
			p.Close()
			return true
		}
	}
	return false
}

func (ps *posts) close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.closed = true
	for _, p := range ps.open {
		p.Close()
	}
}

// of returns the post that serves a key, if it is open.
func (ps *posts) of(key string) *post {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.open[ps.d.slotOf(key)]
}

// rank returns how many have watched for longer than c's owner, who may not watch at all.
func (ps *posts) rank(c driver.Claim) (rank int, watches bool) {
	p := ps.of(c.Key)
	if p == nil {
		return 0, false
	}
	channel := ps.d.channel(c)
	if !p.Listens(channel) {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.waiting[channel], func(w *watcher) bool { return w.claim.ID() == c.ID() })
	return max(i, 0), i >= 0
}

// asked notes that c's owner asks the store, and returns what to call when it was answered.
func (ps *posts) asked(c driver.Claim) (answered func()) {
	p := ps.of(c.Key)
	if p == nil {
		return func() {}
	}
	channel := ps.d.channel(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.waiting[channel], func(w *watcher) bool { return w.claim.ID() == c.ID() })
	if i < 0 {
		return func() {}
	}
	w := p.waiting[channel][i]
	before := w.signals
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		w.heeded = before
	}
}

// watch registers an owner until ctx ends.
func (p *post) watch(ctx context.Context, channel string, c driver.Claim) <-chan struct{} {
	w := &watcher{claim: c, hint: make(chan struct{}, 1)}
	p.mu.Lock()
	p.waiting[channel] = append(p.waiting[channel], w)
	if !p.Listens(channel) {
		w.signal() // the connection went while we came
	}
	p.mu.Unlock()
	context.AfterFunc(ctx, func() {
		p.forget(channel, w)
		p.Leave(channel)
	})
	return w.hint
}

// forget ends a wait. A message that woke it, and after which it asked no more, goes on to the next.
func (p *post) forget(channel string, w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := slices.DeleteFunc(p.waiting[channel], func(other *watcher) bool { return other == w })
	if p.waiting[channel] = rest; len(rest) == 0 {
		delete(p.waiting, channel)
	} else if w.signals != w.heeded {
		p.wake(channel, false)
	}
}

func (p *post) unwatched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting) == 0
}

// receive takes a message of a release. Anybody who may publish can have sent it.
func (p *post) receive(channel, payload string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake(channel, payload == "1")
}

// wake gives a hint to whoever has waited for longest: as Java, to one in each process. Readers share the lock, and so the
// hint; those is given to all readers there are. mu is held.
func (p *post) wake(channel string, readers bool) {
	all := p.waiting[channel]
	if len(all) == 0 {
		return
	}
	all[0].signal()
	if !readers && all[0].claim.Mode != driver.Shared {
		return
	}
	for _, w := range all[1:] {
		if w.claim.Mode == driver.Shared {
			w.signal()
		}
	}
}

// stands: messages on a channel may have been missed.
func (p *post) stands(channel string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiting[channel] {
		w.signal()
	}
}

// news: messages may have been missed on all of them.
func (p *post) news() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, all := range p.waiting {
		for _, w := range all {
			w.signal()
		}
	}
}

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

// maxPosts bounds the subscriptions of a store in a cluster, where each hash slot
// needs its own. Waiters in further slots poll.
const maxPosts = 32

// posts are the subscriptions of a store: one, or in a cluster one for each hash slot
// with waiters.
type posts struct {
	s      *store
	wake   func(channel, payload string, all []*watcher) // gives hints for a message; all have waited on the channel, the longest first
	next   string                                        // the message for the others when one leaves with an unheeded hint
	mu     sync.Mutex
	open   map[int]*post
	closed bool
}

// post is one connection for subscriptions, and the watchers that wait for its messages.
type post struct {
	*wire.Inbox
	all     *posts
	mu      sync.Mutex
	waiting map[string][]*watcher // by channel, the longest first
}

// watcher is one waiter.
type watcher struct {
	claim   driver.Claim // of a lock
	permits int          // of a semaphore: how many it wants
	hint    chan driver.Hint
	signals int // how many it was given
	begun   int // how many of them before its latest request
	heeded  int // how many of them before its latest request that was answered
}

// signal gives a hint. mu of the post is held.
func (w *watcher) signal() {
	w.signals++
	driver.Hint{}.Send(w.hint)
}

// woken: it was given a hint, and has not begun to ask since. mu of the post is held.
func (w *watcher) woken() bool { return w.signals != w.begun }

// get returns the post for a hash slot, a new one if need be, or nil when there
// are too many. It has a user more, until Use(-1).
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
	s := ps.s
	p := &post{all: ps, waiting: map[string][]*watcher{}}
	o := wire.InboxOptions{
		Client: s.rdb, Own: wire.Sidecars + "inbox:" + s.id, Receive: p.receive, News: p.news, Stands: p.stands,
		Classify: s.classify, Idle: p.idle,
	}
	if slot >= 0 {
		o.Own, o.Sharded = wire.Sidecars+"inbox:{"+wire.TagOf(slot)+"}"+s.id, true
	}
	p.Inbox = wire.NewInbox(s.life, o)
	p.Use(1)
	ps.open[slot] = p
	s.running.Go(p.Run)
	return p, nil
}

// makeRoom closes an idle post.
func (ps *posts) makeRoom() bool {
	for slot, p := range ps.open {
		if p.idle() {
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

// find returns the post for a hash slot, if it is open.
func (ps *posts) find(slot int) *post {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.open[slot]
}

// watch registers a watcher on a channel that was joined, until ctx ends.
func (p *post) watch(ctx context.Context, channel string, w *watcher) {
	w.hint = make(chan driver.Hint, 1)
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
}

// asks notes that w asks the store, and returns what to call when it was answered.
func (p *post) asks(w *watcher) (answered func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := w.signals
	w.begun = before
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		w.heeded = before
	}
}

// forget ends a wait. A message that woke it, and after which it asked no more, goes on to the next.
func (p *post) forget(channel string, w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := slices.DeleteFunc(p.waiting[channel], func(other *watcher) bool { return other == w })
	if p.waiting[channel] = rest; len(rest) == 0 {
		delete(p.waiting, channel)
	} else if w.signals != w.heeded {
		p.all.wake(channel, p.all.next, rest)
	}
}

// idle: no waiter watches, or is about to.
func (p *post) idle() bool { return p.Use(0) == 0 && p.unwatched() }

func (p *post) unwatched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting) == 0
}

// receive takes a message. Any client that may publish can have sent it.
func (p *post) receive(channel, payload string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if all := p.waiting[channel]; len(all) > 0 {
		p.all.wake(channel, payload, all)
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

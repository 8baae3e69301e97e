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

// posts are the subscriptions of a store.
type posts struct {
	wire.Boxes[*post]
	s    *store
	wake func(channel, payload string, all []*watcher) // gives hints for a message; all have waited on the channel, the longest first
	next string                                        // the message for the others when one leaves with an unheeded hint
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

// post returns a new one.
func (ps *posts) post(slot int) *post {
	s := ps.s
	p := &post{all: ps, waiting: map[string][]*watcher{}}
	o := wire.InboxOptions{
		Client: s.client, Own: wire.Sidecars + "inbox:" + s.id, Receive: p.receive, News: p.news, Stands: p.stands,
		Classify: wire.Classify, Idle: p.Idle,
	}
	if slot >= 0 {
		o.Own, o.Sharded = wire.Sidecars+"inbox:{"+wire.TagOf(slot)+"}"+s.id, true
	}
	p.Inbox = wire.NewInbox(s.life, o)
	return p
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

// Idle: no waiter watches, or is about to.
func (p *post) Idle() bool { return p.Use(0) == 0 && p.unwatched() }

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

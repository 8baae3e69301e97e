// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/rand"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A Listener hears the notifications of a channel, on a connection of its own. Package
// sqldriver/pgxlisten has one for PostgreSQL.
type Listener interface {
	// Listen connects, listens on channel, and calls heard with "" when it does, and
	// then with the payload of each message. It returns when ctx has ended, or with an
	// error when the connection could not be made or is lost; it does not connect again.
	Listen(ctx context.Context, channel string, heard func(payload string)) error
}

// hints wakes the waiters of a driver. One connection listens on a channel with a random
// name, which is in the row of each place, so that a release sends its message to the one
// process that waits, with the owner as its text.
//
// The channel is believed when a message came through that was sent to it by the pool
// that the locks use: behind a pooler of connections none may, and waiters poll.
type hints struct {
	under    *sync.WaitGroup
	listener Listener
	tell     func(ctx context.Context, channel, text string) // sends a message as a release would, if it can

	mu       sync.Mutex
	running  bool
	closed   bool
	cancel   context.CancelFunc
	idle     *time.Timer // of rest
	channel  string
	nonce    string        // of the message to ourselves that is under way
	believed bool          // it came through
	tried    chan struct{} // closed when it is known whether the channel is to be believed
	watchers map[string]map[chan driver.Hint]bool
}

const (
	// listenLimit is how long it may take until the channel is believed, or not.
	listenLimit = 5 * selfLimit
	// selfLimit is how long a message to ourselves may take.
	selfLimit = time.Second
	// idleLimit is how long the connection stays without a waiter.
	idleLimit = 5 * time.Second
	// listenAgain is how long after a lost connection another is made.
	listenAgain = time.Second
)

// inbox is the channel on which an owner hears hints, "" when it doesn't.
func (h *hints) inbox(owner string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.believed || len(h.watchers[owner]) == 0 {
		return ""
	}
	return h.channel
}

// watch returns a channel of hints once messages come through, and nil when they don't.
func (h *hints) watch(ctx context.Context, owner string) (<-chan driver.Hint, error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, ctx.Err()
	}
	if !h.running {
		h.start()
	}
	tried := h.tried
	h.mu.Unlock()
	select {
	case <-tried:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	h.mu.Lock()
	if !h.running && !h.closed { // it has just begun to rest
		h.mu.Unlock()
		return h.watch(ctx, owner)
	}
	defer h.mu.Unlock()
	if !h.believed || h.closed {
		return nil, nil
	}
	ch := make(chan driver.Hint, 1)
	if h.watchers[owner] == nil {
		h.watchers[owner] = make(map[chan driver.Hint]bool)
	}
	h.watchers[owner][ch] = true
	context.AfterFunc(ctx, func() { h.unwatch(owner, ch) })
	return ch, nil
}

func (h *hints) unwatch(owner string, ch chan driver.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers[owner], ch)
	if len(h.watchers[owner]) == 0 {
		delete(h.watchers, owner)
	}
	if len(h.watchers) == 0 && h.running && !h.closed {
		h.idle.Reset(idleLimit)
	}
}

// rest ends the connection when there has been no waiter for a while.
func (h *hints) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running && len(h.watchers) == 0 {
		h.cancel()
		h.running, h.believed, h.nonce = false, false, ""
	}
}

// start begins to listen. The goroutine lives until there has been no waiter for a while, or the driver is closed.
func (h *hints) start() {
	ctx, cancel := context.WithCancel(context.Background())
	h.running, h.cancel, h.channel = true, cancel, "hasp_"+strings.ToLower(rand.Text())
	h.watchers = make(map[string]map[chan driver.Hint]bool)
	h.idle = time.AfterFunc(listenLimit+idleLimit, h.rest)
	h.tried = make(chan struct{})
	channel := h.channel
	h.under.Go(func() {
		for ctx.Err() == nil {
			limit := time.AfterFunc(listenLimit, h.judge) // a server that does not answer keeps no waiter from polling
			_ = h.listener.Listen(ctx, channel, func(payload string) { h.heard(ctx, payload) })
			limit.Stop()
			if ctx.Err() == nil { // or the next has begun
				h.lost()
			}
			select {
			case <-ctx.Done():
			case <-time.After(listenAgain):
			}
		}
	})
}

// heard is called with each message.
func (h *hints) heard(ctx context.Context, payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case ctx.Err() != nil: // of a connection that was ended since
	case payload == "":
		h.nonce = "self " + rand.Text()
		nonce := h.nonce
		time.AfterFunc(selfLimit, h.judge)
		h.under.Go(func() { h.tellSelf(ctx, h.channel, nonce) })
	case payload == h.nonce:
		h.believed = true
		h.settle()
	default:
		for ch := range h.watchers[payload] {
			driver.Hint{}.Send(ch)
		}
	}
}

// judge ends the wait for the message to ourselves. Should it come later, it is believed
// from then on.
func (h *hints) judge() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settle()
}

func (h *hints) settle() {
	select {
	case <-h.tried:
	default:
		close(h.tried)
	}
}

// lost has all ask, since messages may have been lost, and poll from now on.
func (h *hints) lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.believed, h.nonce = false, ""
	h.settle()
	for _, chs := range h.watchers {
		for ch := range chs {
			driver.Hint{}.Send(ch)
		}
	}
}

func (h *hints) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.running {
		h.idle.Stop()
		h.cancel()
	}
}

// tellSelf sends a message to our own channel. That it failed is known by its not coming.
func (h *hints) tellSelf(ctx context.Context, channel, text string) {
	ctx, cancel := context.WithTimeout(ctx, selfLimit)
	defer cancel()
	h.tell(ctx, channel, text)
}

// lines are the waiters of a client that the server sends no hints. Of those that want a key alone, only the first asks
// at intervals: the turn of each other comes after its, and when its wait ends it wakes the next. So what the
// polls cost a server depends on how many clients wait, not on how many waiters they have.
type lines struct {
	mu   sync.Mutex
	keys map[string][]*inLine
}

// inLine is a waiter with a channel.
type inLine struct {
	owner string
	wake  chan driver.Hint
	place int64 // noPlace: it has none that is known, and asks for itself
}

const noPlace = math.MaxInt64

// watch puts a waiter into its line, until ctx has ended.
func (l *lines) watch(ctx context.Context, c driver.Claim) <-chan driver.Hint {
	w := &inLine{c.Owner, make(chan driver.Hint, 1), noPlace}
	l.change(c.Key, "", func() { l.keys[c.Key] = append(l.keys[c.Key], w) })
	context.AfterFunc(ctx, func() {
		l.change(c.Key, "", func() { l.keys[c.Key] = slices.DeleteFunc(l.keys[c.Key], func(o *inLine) bool { return o == w }) })
	})
	return w.wake
}

// behind notes the place that a waiter has, and says whether the waiter can wait until it is woken.
func (l *lines) behind(key, owner string, place int64) (behind bool) {
	l.change(key, owner, func() {
		for _, w := range l.keys[key] {
			if w.owner == owner {
				w.place, behind = place, place != noPlace
			}
		}
		if first := l.first(key); first != nil {
			behind = behind && first.owner != owner
		}
	})
	return behind
}

// change wakes the waiter that it makes the first of a line, unless that is just asking.
func (l *lines) change(key, asks string, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = make(map[string][]*inLine)
	}
	before := l.first(key)
	f()
	if first := l.first(key); first != nil && first != before && first.owner != asks {
		driver.Hint{}.Send(first.wake)
	}
	if len(l.keys[key]) == 0 {
		delete(l.keys, key)
	}
}

// first is the waiter of a line whose turn comes first, nil where none has a place that is known.
func (l *lines) first(key string) (first *inLine) {
	for _, w := range l.keys[key] {
		if w.place != noPlace && (first == nil || w.place < first.place) {
			first = w
		}
	}
	return first
}

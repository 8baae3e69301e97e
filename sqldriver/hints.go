// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/rand"
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
	s        *Server
	listener Listener

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
	// idleLimit is how long the connection stays when nobody waits.
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

// rest ends the connection when nobody has waited for a while.
func (h *hints) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running && len(h.watchers) == 0 {
		h.cancel()
		h.running, h.believed, h.nonce = false, false, ""
	}
}

// start begins to listen. The goroutine lives until nobody has waited for a while, or the driver is closed.
func (h *hints) start() {
	ctx, cancel := context.WithCancel(context.Background())
	h.running, h.cancel, h.channel = true, cancel, "hasp_"+strings.ToLower(rand.Text())
	h.watchers = make(map[string]map[chan driver.Hint]bool)
	h.idle = time.AfterFunc(listenLimit+idleLimit, h.rest)
	h.tried = make(chan struct{})
	channel := h.channel
	h.s.under.Go(func() {
		for ctx.Err() == nil {
			limit := time.AfterFunc(listenLimit, h.judge) // a server that does not answer keeps nobody waiting
			err := h.listener.Listen(ctx, channel, func(payload string) { h.heard(ctx, payload) })
			limit.Stop()
			if ctx.Err() == nil { // or the next has begun
				h.lost(err)
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
	case ctx.Err() != nil: // of one that rests
	case payload == "":
		h.nonce = "self " + rand.Text()
		nonce := h.nonce
		time.AfterFunc(selfLimit, h.judge)
		h.s.under.Go(func() { h.s.tellSelf(ctx, h.channel, nonce) })
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
func (h *hints) lost(error) {
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

// tellSelf sends a message to our own channel, as a release would. That it failed is
// known by its not coming.
func (s *Server) tellSelf(ctx context.Context, channel, text string) {
	ctx, cancel := context.WithTimeout(ctx, selfLimit)
	defer cancel()
	_, _ = s.once(ctx, s.db.Conn, func(c *conn) error {
		_, err := c.exec(sSelf, channel, text)
		return err
	})
}

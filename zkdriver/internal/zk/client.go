// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime/pprof"
	"slices"
	"sync"
	"time"
)

// Config says how to reach the servers.
type Config struct {
	Servers []string      // host:port
	Timeout time.Duration // of the session, as asked for; the servers decide
	Dial    func(ctx context.Context, addr string) (net.Conn, error)
	// Auth is asked for the proofs of identity at each connection, and after a server refused what it was asked (ErrNoAuth), so
	// that a new password is used from then on; nil: none.
	Auth func(ctx context.Context) ([]Auth, error)

	// Ended is called when a session is over, before there is another. Linked is called when
	// a connection stands. Shortest is the shortest lease that is held, 0 when none is: a client that holds one connects
	// again sooner than a client that waits. None of them may block.
	Ended    func(*Session)
	Linked   func()
	Shortest func() time.Duration
}

// Auth is a proof of identity, such as {"digest", "user:password"}.
type Auth struct {
	Scheme string
	Data   []byte
}

func (a Auth) equal(b Auth) bool { return a.Scheme == b.Scheme && bytes.Equal(a.Data, b.Data) }

// Client keeps one session at a time, over one connection at a time. It connects when it is first
// used, and stays connected. All methods may be called concurrently.
type Client struct {
	cfg    Config
	life   context.Context
	end    context.CancelFunc
	kick   chan struct{} // connect now
	ended  chan struct{} // the loop has returned
	closer sync.Once
	quiet  bool          // it does not ping: for a test
	ends   time.Duration // for how long Close waits for the answer to the end of the session
	bears  patience
	asks   sync.Mutex     // is held while Auth is asked after a refusal
	work   sync.WaitGroup // that

	// Of the goroutine that connects.
	full bool     // the servers took no more connections of this host
	old  *Session // is over by the clock, and the servers may still have it

	mu      sync.Mutex
	begun   bool
	over    bool
	sess    *Session
	link    *link         // nil: not connected
	proofs  []Auth        // of the latest connections
	granted time.Duration // the time-out of the latest session
	zxid    int64         // the newest state of the store that this session has seen
	change  chan struct{} // closed at the next change of link or rounds
	rounds  int           // attempts to reach any server that failed
	last    error         // why the latest of them failed
	stays   bool          // it leaves the servers alone for a while, since they are full
}

// New returns a client. It does no I/O.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg, kick: make(chan struct{}, 1), ended: make(chan struct{}), change: make(chan struct{}), ends: time.Second}
	c.cfg.Servers = slices.Clone(cfg.Servers)
	rand.Shuffle(len(c.cfg.Servers), func(i, j int) {
		s := c.cfg.Servers
		s[i], s[j] = s[j], s[i]
	})
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Aside returns a client of the same servers with a session of its own.
func (c *Client) Aside() *Client {
	return New(Config{Servers: c.cfg.Servers, Timeout: c.cfg.Timeout, Dial: c.cfg.Dial, Auth: c.cfg.Auth})
}

// Session returns the current session once there is a connection. The error, when every server was
// tried in vain or ctx ended, is of a request that was not sent.
func (c *Client) Session(ctx context.Context) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, unsent{err}
	}
	for first := -1; ; {
		c.mu.Lock()
		if c.over {
			c.mu.Unlock()
			return nil, unsent{ErrClosed}
		}
		if c.link != nil {
			s := c.sess
			c.mu.Unlock()
			return s, nil
		}
		if !c.begun {
			c.begun = true
			go c.run()
		}
		change, rounds, last, stays := c.change, c.rounds, c.last, c.stays
		c.mu.Unlock()
		if stays {
			return nil, unsent{fmt.Errorf("%w: %w", ErrUnreachable, last)}
		}
		if first < 0 {
			first = rounds
			select {
			case c.kick <- struct{}{}:
			default:
			}
		}
		if rounds > first {
			return nil, unsent{fmt.Errorf("%w: %w", ErrUnreachable, last)}
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, unsent{ctx.Err()}
		}
	}
}

// Server is the address of the server that it is connected to, "" while there is none.
func (c *Client) Server() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return ""
	}
	return c.link.addr
}

// Timeout is that of the latest session, as the servers granted it; 0 before there was one.
func (c *Client) Timeout() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granted
}

// changed wakes all that wait. The caller holds mu.
func (c *Client) changed() {
	close(c.change)
	c.change = make(chan struct{})
}

// Close ends the session, and returns when that was confirmed or a second has passed.
func (c *Client) Close() error {
	c.closer.Do(c.close)
	return nil
}

func (c *Client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), c.ends)
	defer cancel()
	c.mu.Lock()
	s, linked := c.sess, c.link != nil
	c.mu.Unlock()
	if linked && s.Do(ctx, &Call{op: opCloseSession}) == nil {
		c.sessionOver(s)
	}
	c.mu.Lock()
	c.over = true
	begun := c.begun
	c.changed()
	c.mu.Unlock()
	c.end()
	if begun {
		<-c.ended
	}
	c.work.Wait()
	c.mu.Lock()
	s = c.sess
	c.mu.Unlock()
	if s != nil {
		c.quit(ctx, s)
		c.sessionOver(s)
	}
}

// The pauses between attempts to reach any server. A client that holds a lease is back before those that wait: where the
// servers take no more connections of this host, those leave it the free one.
const (
	pauseFirst = 50 * time.Millisecond
	pauseHolds = 200 * time.Millisecond
	pauseLast  = time.Second
	pauseFull  = 5 * time.Second
)

// run keeps the client connected.
func (c *Client) run() {
	defer close(c.ended)
	pprof.SetGoroutineLabels(context.Background()) // it is not of the caller that happened to be the first
	next := 0
	for pause := pauseFirst; c.life.Err() == nil; pause *= 2 {
		began, err := c.round(&next)
		switch {
		case c.life.Err() != nil:
			return
		case began && err == nil:
			pause = pauseFirst / 2
			continue
		}
		yields := c.full && c.Timeout() == 0
		switch {
		case yields:
			pause = min(max(pause, pauseLast), pauseFull)
		case c.holds():
			pause = min(pause, pauseHolds)
		default:
			pause = min(pause, pauseLast)
		}
		c.mu.Lock()
		if !began { // what served this client a moment ago may do so again
			c.rounds++
		}
		c.last, c.stays = err, yields
		c.changed()
		c.mu.Unlock()
		timer := time.NewTimer(pause/2 + rand.N(pause))
		kick := c.kick
		if yields {
			kick = nil
		}
		select {
		case <-timer.C:
		case <-kick:
		case <-c.life.Done():
		}
		timer.Stop()
		c.mu.Lock()
		c.stays = false
		c.mu.Unlock()
	}
}

// round tries each server once. began: one served this client, and without an error it did so for a while.
func (c *Client) round(next *int) (began bool, err error) {
	for range c.cfg.Servers {
		addr := c.cfg.Servers[*next%len(c.cfg.Servers)]
		*next++
		var l *link
		if l, err = c.connect(addr); errors.Is(err, ErrSessionExpired) {
			l, err = c.connect(addr) // it begins another
		}
		if err == nil {
			start := time.Now()
			l.serve()
			if time.Since(start) > pauseLast {
				return true, nil
			}
			began, err = true, l.why // at once: not without a pause
		}
		err = fmt.Errorf("%s: %w", addr, err)
		if c.life.Err() != nil {
			break
		}
	}
	return began, err
}

func (c *Client) holds() bool { return c.cfg.Shortest != nil && c.cfg.Shortest() > 0 }

// sessionOver ends a session, if it is the current one.
func (c *Client) sessionOver(s *Session) {
	c.mu.Lock()
	if c.sess != s {
		c.mu.Unlock()
		return
	}
	c.sess, c.zxid = nil, 0
	close(s.over)
	c.changed()
	c.mu.Unlock()
	if c.cfg.Ended != nil {
		c.cfg.Ended(s)
	}
}

// current is the session, nil when there is none.
func (c *Client) current() *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sess
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"bufio"
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
	Auth    []Auth

	// Ended is called when a session is over, before there is another. Linked is called when
	// a connection stands. Neither may block.
	Ended  func(*Session)
	Linked func()
}

// Auth is a proof of identity, such as {"digest", "user:password"}.
type Auth struct {
	Scheme string
	Data   []byte
}

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

	mu      sync.Mutex
	begun   bool
	over    bool
	sess    *Session
	link    *link         // nil: not connected
	granted time.Duration // the time-out of the latest session
	zxid    int64         // the newest state of the store that this session has seen
	change  chan struct{} // closed at the next change of link or rounds
	rounds  int           // attempts to reach any server that failed
	last    error         // why the latest of them failed
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
		change, rounds, last := c.change, c.rounds, c.last
		c.mu.Unlock()
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
	if linked && s.Do(ctx, &Call{op: opCloseSession, encode: func(*encoder) {}}) == nil {
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
	c.mu.Lock()
	s = c.sess
	c.mu.Unlock()
	if s != nil {
		c.quit(ctx, s)
		c.sessionOver(s)
	}
}

// quit ends a session without a connection, over one that says nothing else: not who we are, which may be what the servers refuse.
// Where none answers it expires.
func (c *Client) quit(ctx context.Context, s *Session) {
	for _, addr := range c.cfg.Servers {
		if conn, err := c.dial(ctx, addr); err == nil && c.quitOver(ctx, conn, s) == nil {
			return
		}
	}
}

func (c *Client) quitOver(ctx context.Context, conn net.Conn, s *Session) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	r := bufio.NewReader(conn)
	if w, err := c.greet(conn, r, s); err != nil || w.timeout <= 0 {
		return err
	}
	var e encoder
	e.int(8)
	e.int(1)
	e.int(opCloseSession)
	if _, err := conn.Write(e.b); err != nil {
		return err
	}
	_, err := readMessage(r)
	return err
}

// The pauses between attempts to reach any server.
const (
	pauseFirst = 50 * time.Millisecond
	pauseLast  = time.Second
)

// run keeps the client connected.
func (c *Client) run() {
	defer close(c.ended)
	pprof.SetGoroutineLabels(context.Background()) // it is not of whoever happened to be the first
	next := 0
	for pause := pauseFirst; c.life.Err() == nil; pause = min(2*pause, pauseLast) {
		var err error
		for range c.cfg.Servers {
			addr := c.cfg.Servers[next%len(c.cfg.Servers)]
			next++
			var l *link
			if l, err = c.connect(addr); errors.Is(err, ErrSessionExpired) {
				l, err = c.connect(addr) // it begins another
			}
			if err == nil {
				began := time.Now()
				l.serve()
				if time.Since(began) > pauseLast {
					pause = pauseFirst
					break
				}
				err = ErrLost // at once: not without a pause
			}
			err = fmt.Errorf("%s: %w", addr, err)
			if c.life.Err() != nil {
				return
			}
		}
		if err == nil {
			continue
		}
		c.mu.Lock()
		c.rounds++
		c.last = err
		c.changed()
		c.mu.Unlock()
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-c.kick:
		case <-c.life.Done():
		}
		timer.Stop()
	}
}

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

// dialTime bounds the time for one server, so that there is time for the others.
func (c *Client) dialTime() time.Duration {
	return min(max(c.cfg.Timeout/(2*time.Duration(len(c.cfg.Servers))), 500*time.Millisecond), 5*time.Second)
}

func (c *Client) dial(ctx context.Context, addr string) (net.Conn, error) {
	if c.cfg.Dial != nil {
		return c.cfg.Dial(ctx, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// connect connects to one server, and goes on with the session or begins one.
func (c *Client) connect(addr string) (*link, error) {
	ctx, cancel := context.WithTimeout(c.life, c.dialTime())
	defer cancel()
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	l, err := c.handshake(conn)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	l.addr = addr
	return l, nil
}

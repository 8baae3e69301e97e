// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
)

// dialTime bounds the time for one server, so that there is time for the others, within the shortest lease.
func (c *Client) dialTime() time.Duration {
	most := 5 * time.Second
	if c.current() != nil {
		most = max(5*c.bears.limit(most)/2, time.Second)
	}
	return min(max(c.cfg.Timeout/(2*time.Duration(len(c.cfg.Servers))), 500*time.Millisecond), most)
}

func (c *Client) dial(ctx context.Context, addr string) (net.Conn, error) {
	if c.cfg.Dial != nil {
		return c.cfg.Dial(ctx, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// connect connects to one server, and goes on with the session or begins one.
func (c *Client) connect(addr string) (l *link, err error) {
	ctx, cancel := context.WithTimeout(c.life, c.dialTime())
	defer cancel()
	c.lapse(ctx, addr)
	newcomer := c.full && c.Timeout() == 0
	conn, err := c.dial(ctx, addr)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		if l, err = c.handshake(ctx, conn); err == nil && newcomer {
			err = c.makeRoom(ctx, addr, l)
		}
		if !stop() && err == nil {
			err = ctx.Err()
		}
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		if ctx.Err() != nil { // that ended it, and closed the connection
			err = ctx.Err()
		}
		err = c.turnedAway(addr, err)
		c.full = c.full || errors.Is(err, ErrFull)
		return nil, err
	}
	c.full, c.old, l.addr = false, nil, addr
	return l, nil
}

// makeRoom gives up a new session over what is the last connection that the server has for this host: it is for a client that
// had one, and may hold a lease.
func (c *Client) makeRoom(ctx context.Context, addr string, l *link) error {
	_, err := c.Word(ctx, addr, "srvr")
	if !errors.Is(err, ErrFull) {
		return nil
	}
	c.sessionOver(l.s)
	c.mu.Lock()
	c.granted = 0 // it is still a client that never had a session
	c.mu.Unlock()
	return errors.Join(err, farewell(l.conn, l.r))
}

// lapse ends a session that had no answer for its whole time-out. Servers that were emptied, or have an older state of the
// store, refuse a client that has seen a newer one, and so would never say that the session is over. A server that still has
// it ends it now.
func (c *Client) lapse(ctx context.Context, addr string) {
	if s := c.current(); s != nil && s.lapsed(time.Now()) {
		c.old = s
		c.sessionOver(s)
	}
	if c.old == nil {
		return
	}
	if conn, err := c.dial(ctx, addr); err == nil && c.quitOver(ctx, conn, c.old) == nil {
		c.old = nil
	}
}

// welcome is what a server answers to a client that connects. Without a timeout the session is over.
type welcome struct {
	sent    time.Time // when it was asked
	timeout time.Duration
	id      int64
	passwd  []byte
}

// greet tells a server of a session, or that there is none.
func (c *Client) greet(conn net.Conn, r *bufio.Reader, s *Session) (w welcome, err error) {
	c.mu.Lock()
	zxid := c.zxid
	c.mu.Unlock()
	var e encoder
	e.int(0)     // the length
	e.int(0)     // the version of the protocol
	e.long(zxid) // a server that is behind it turns us away
	e.int(int32(c.cfg.Timeout / time.Millisecond))
	if s != nil {
		e.long(s.id)
		e.data(s.passwd)
	} else {
		e.long(0)
		e.data(make([]byte, 16))
	}
	e.bool(false) // a server without the leader is of no use
	e.measure(0)
	w.sent = time.Now()
	if _, err := conn.Write(e.b); err != nil {
		return w, err
	}
	msg, err := readMessage(r)
	if err != nil {
		return w, err
	}
	d := decoder{b: msg}
	d.int()
	w.timeout, w.id, w.passwd = time.Duration(d.int())*time.Millisecond, d.long(), append([]byte(nil), d.data()...)
	return w, d.err
}

// handshake goes on with the client's session, or begins one, which is the client's from then on, whatever else fails.
func (c *Client) handshake(ctx context.Context, conn net.Conn) (*link, error) {
	c.mu.Lock()
	s := c.sess
	c.mu.Unlock()
	l := &link{c: c, conn: conn, wake: make(chan struct{}, 1), stop: make(chan struct{}), watches: make(map[string]map[*Watch]bool), why: ErrLost}
	l.r = bufio.NewReaderSize(l, 32<<10)
	w, err := c.greet(conn, l.r, s)
	switch {
	case err != nil:
		return nil, err
	case w.timeout <= 0 && s == nil:
		return nil, fmt.Errorf("the server began no session: %w", ErrSessionExpired)
	case w.timeout <= 0:
		c.sessionOver(s)
		return nil, ErrSessionExpired
	case s == nil:
		s = &Session{c: c, id: w.id, passwd: w.passwd, over: make(chan struct{})}
	}
	s.connected(w.sent, w.timeout)
	c.mu.Lock()
	c.sess, c.granted = s, w.timeout
	c.mu.Unlock()
	l.s, l.idle, l.beat = s, c.idle(w.timeout), w.timeout/rhythm
	return l, c.authenticate(ctx, conn, l.r)
}

// idle is for how long a server may say nothing.
func (c *Client) idle(timeout time.Duration) time.Duration {
	if c.quiet {
		return timeout
	}
	return timeout / 3
}

// connected notes that the leader knows of the session since sent.
func (s *Session) connected(sent time.Time, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timeout = timeout
	s.note(touch{sent: sent, answered: time.Now(), direct: true})
}

// identities is how many of its latest identities a client keeps.
const identities = 8

// authenticate gives our identity on a new connection, and those of before: what was made then belongs to them.
func (c *Client) authenticate(ctx context.Context, conn net.Conn, r *bufio.Reader) error {
	if c.cfg.Auth == nil {
		return nil
	}
	now, err := c.cfg.Auth(ctx)
	if err != nil {
		return err
	}
	proofs := c.known(now)
	for _, a := range proofs {
		var e encoder
		e.proof(a)
		if _, err := conn.Write(e.b); err != nil {
			return err
		}
		for {
			msg, err := readMessage(r)
			if err != nil {
				return err
			}
			d := decoder{b: msg}
			xid, _, code := d.int(), d.long(), Code(d.int())
			if d.err != nil {
				return d.err
			}
			if xid != xidAuth {
				continue
			}
			if code != 0 {
				return code
			}
			break
		}
	}
	c.mu.Lock()
	c.proofs = proofs
	c.mu.Unlock()
	return nil
}

// known are some proofs, and the latest before them.
func (c *Client) known(now []Auth) []Auth {
	c.mu.Lock()
	defer c.mu.Unlock()
	proofs := slices.Clone(now)
	for _, old := range c.proofs {
		if len(proofs) < identities && !slices.ContainsFunc(proofs, old.equal) {
			proofs = append(proofs, old)
		}
	}
	return proofs
}

// quit ends a session without a connection, over one with no other message: it gives no identity, which may be what the
// servers refuse. Where no server answers the session expires.
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
	return farewell(conn, r)
}

// farewell ends the session of a connection that says nothing else.
func farewell(conn net.Conn, r *bufio.Reader) error {
	var e encoder
	e.message(1, opCloseSession, nil)
	if _, err := conn.Write(e.b); err != nil {
		return err
	}
	_, err := readMessage(r)
	return err
}

const (
	// wordLimit bounds the answer to a word: in time, and in bytes.
	wordLimit = 2 * time.Second
	wordBytes = 64 << 10
)

// Word asks a server by one of ZooKeeper's words of four letters, over a connection of its own. Every server says something, if only that
// it does not answer this word.
func (c *Client) Word(ctx context.Context, addr, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, wordLimit)
	defer cancel()
	text, err := c.ask(ctx, addr, word)
	if err != nil && closed(err) {
		err = fmt.Errorf("%w (%w)", ErrFull, err)
	}
	return text, err
}

func (c *Client) ask(ctx context.Context, addr, word string) (string, error) {
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close() // it was only asked
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err = io.WriteString(conn, word); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(conn, wordBytes))
	if len(text) > 0 { // some servers then reset the connection
		return string(text), nil
	}
	return "", cmp.Or(err, io.EOF)
}

// turnedAway finds out why a server closed a connection that it had accepted, and adds that to the error: it does not say so itself.
func (c *Client) turnedAway(addr string, err error) error {
	if errors.Is(err, ErrFull) || !closed(err) {
		return err
	}
	c.mu.Lock()
	seen := c.zxid
	c.mu.Unlock()
	text, why := c.Word(c.life, addr, "srvr")
	switch {
	case errors.Is(why, ErrFull):
		return fmt.Errorf("%w (%w)", ErrFull, err)
	case strings.Contains(text, "not currently serving"):
		return fmt.Errorf("the server serves no client now, as too few of the ensemble run, or it is cut off from them: %w", err)
	case text != "" && seen > 0:
		return fmt.Errorf("the server turned this client away, which has seen a newer state of the store than the server has: %w", err)
	}
	return err
}

// closed reports whether the other side closed a connection.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

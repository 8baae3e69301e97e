// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// maxMessage bounds what is read at once: far more than servers send (jute.maxbuffer is 1 MB).
const maxMessage = 64 << 20

// link is one connection.
type link struct {
	c    *Client
	s    *Session
	conn net.Conn
	addr string
	r    *bufio.Reader
	idle time.Duration // nothing was asked: without a word for so long it is dead
	beat time.Duration // between pings
	wake chan struct{} // there is something to write
	stop chan struct{} // it has ended

	mu      sync.Mutex
	xid     int32
	out     []byte
	pending []pending
	pings   []time.Time // sent and not answered
	watches map[string]map[*Watch]bool
	over    bool
	why     error // of a link that the server said is over; else ErrLost
}

// pending is a call that was sent.
type pending struct {
	xid  int32
	call *Call
	b    *batch
	sent time.Time
}

// identify asks for the proofs of identity once more, since the server refused what it was asked: new ones are said over the
// connection that stands.
func (l *link) identify() {
	c := l.c
	if c.cfg.Auth == nil || !c.asks.TryLock() {
		return
	}
	c.work.Go(func() {
		defer c.asks.Unlock()
		ctx, cancel := context.WithTimeout(c.life, c.dialTime())
		defer cancel()
		if now, err := c.cfg.Auth(ctx); err == nil {
			l.says(now, c.known(now))
		}
	})
}

// says sends those of the proofs that the link has not said. all are the client's from then on.
func (l *link) says(now, all []Auth) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != l { // the next says its own
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := encoder{l.out}
	for _, a := range now {
		if !slices.ContainsFunc(c.proofs, a.equal) {
			e.proof(a)
		}
	}
	l.out, c.proofs = e.b, all
	l.poke()
}

func readMessage(r *bufio.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return nil, errShort
	}
	msg := make([]byte, n)
	_, err := io.ReadFull(r, msg)
	return msg, err
}

// serve makes the link the client's, and returns when it has ended.
func (l *link) serve() {
	c := l.c
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		_ = l.conn.Close()
		return
	}
	c.link = l
	c.changed()
	c.mu.Unlock()
	if c.cfg.Linked != nil {
		c.cfg.Linked()
	}
	go l.write()
	ended := make(chan struct{})
	go func() {
		select {
		case <-c.life.Done():
			_ = l.conn.Close()
		case <-ended:
		}
	}()
	expired := l.read()
	close(ended)
	close(l.stop)
	_ = l.conn.Close()
	c.mu.Lock()
	c.link = nil
	c.changed()
	c.mu.Unlock()
	if expired {
		c.sessionOver(l.s)
	}
	l.fail()
}

// send has calls written, and their answers awaited. It is false when the link has ended.
func (l *link) send(b *batch, calls []*Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	now := time.Now()
	l.asks(now)
	for _, call := range calls {
		l.xid++
		if l.xid <= 0 {
			l.xid = 1
		}
		e := encoder{l.out}
		e.message(l.xid, call.op, call.encode)
		l.out = e.b
		l.pending = append(l.pending, pending{l.xid, call, b, now})
	}
	l.poke()
	return true
}

// poke has what is to be sent written.
func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write writes what is to be sent, and pings.
func (l *link) write() {
	beat := time.NewTicker(max(l.beat, time.Millisecond))
	defer beat.Stop()
	var spare []byte
	for {
		select {
		case <-l.wake:
		case <-beat.C:
			if !l.c.quiet {
				l.ping()
			}
		case <-l.stop:
			return
		}
		l.mu.Lock()
		out := l.out
		if len(out) > 0 {
			l.out = spare[:0]
		}
		l.mu.Unlock()
		if len(out) == 0 {
			continue
		}
		if l.conn.SetWriteDeadline(time.Now().Add(l.idle)) != nil {
			return
		}
		if _, err := l.conn.Write(out); err != nil {
			_ = l.conn.Close() // the reader notices
			return
		}
		if spare = out; cap(spare) > 1<<20 {
			spare = nil
		}
	}
}

func (l *link) ping() {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := encoder{l.out}
	e.message(xidPing, opPing, nil)
	l.out = e.b
	now := time.Now()
	l.asks(now)
	l.pings = append(l.pings, now)
}

// asked reports whether something has no answer yet. The caller holds mu.
func (l *link) asked() bool { return len(l.pending)+len(l.pings) > 0 }

// asks notes that something is about to be asked: from now on the server has to say something. The caller holds mu.
func (l *link) asks(now time.Time) {
	if !l.asked() {
		_ = l.conn.SetReadDeadline(now.Add(l.c.bears.limit(l.idle))) // on an error the reader ends
	}
}

// attend sets until when the server has to say something.
func (l *link) attend() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.idle
	if l.asked() {
		limit = l.c.bears.limit(l.idle)
	}
	return l.conn.SetReadDeadline(time.Now().Add(limit))
}

// Read reads from the connection. Whatever comes shows that it lives, also a part of a long answer.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.conn.Read(p)
	switch {
	case l.s == nil: // the handshake has a limit of its own
	case err == nil:
		err = l.attend()
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.c.bears.silent(l.idle)
	}
	return n, err
}

// read takes answers and events until the link ends. expired: because the session has.
func (l *link) read() (expired bool) {
	for {
		if l.attend() != nil {
			return false
		}
		msg, err := readMessage(l.r)
		if err != nil {
			return false
		}
		d := decoder{b: msg}
		xid, zxid, code := d.int(), d.long(), Code(d.int())
		l.c.saw(zxid)
		switch xid {
		case xidWatch:
			d.int()
			d.int()
			l.event(d.text())
		case xidPing:
			l.pinged()
		case xidAuth:
		default:
			switch code {
			case ErrSessionExpired:
				return true
			case ErrWantsSASL:
				l.why = code // and it closes the connection
				return false
			}
			if !l.reply(xid, code, &d) || code == ErrSessionMoved {
				return false
			}
		}
		if d.err != nil {
			return false
		}
	}
}

// saw notes the state of the store that an answer is of.
func (c *Client) saw(zxid int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zxid = max(c.zxid, zxid)
}

func (l *link) pinged() {
	l.mu.Lock()
	if len(l.pings) == 0 {
		l.mu.Unlock()
		return
	}
	sent := l.pings[0]
	l.pings = l.pings[1:]
	l.mu.Unlock()
	l.c.bears.answered(time.Since(sent))
	l.s.answered(sent, false)
}

// reply takes the answer to the oldest call. It is false when it is another's.
func (l *link) reply(xid int32, code Code, d *decoder) bool {
	l.mu.Lock()
	if len(l.pending) == 0 || l.pending[0].xid != xid {
		l.mu.Unlock()
		return false
	}
	p := l.pending[0]
	l.pending[0] = pending{}
	l.pending = l.pending[1:]
	l.mu.Unlock()
	l.c.bears.answered(time.Since(p.sent))
	p.call.answer(code, d)
	if d.err != nil {
		p.b.err = d.err
	}
	if w := p.call.watch; w != nil && p.call.Err == nil {
		l.mu.Lock()
		if l.watches[w.path] == nil {
			l.watches[w.path] = make(map[*Watch]bool)
		}
		l.watches[w.path][w] = true
		l.mu.Unlock()
	}
	l.s.answered(p.sent, p.call.writes() && code.decided() && p.call.Err != error(ErrSessionExpired)) //nolint:errorlint // a code as it is
	denied := p.call.Err == error(ErrNoAuth)                                                          //nolint:errorlint // a code as it is
	if p.b.left--; p.b.left == 0 {
		p.b.finish(nil)
	}
	if denied {
		l.identify()
	}
	return true
}

func (l *link) event(path string) {
	l.mu.Lock()
	fired := l.watches[path]
	delete(l.watches, path)
	l.mu.Unlock()
	for w := range fired {
		w.Fire()
	}
}

func (l *link) forget(w *Watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := l.watches[w.path]; all[w] {
		if delete(all, w); len(all) == 0 {
			delete(l.watches, w.path)
		}
	}
}

// fail ends everything that waits for the link.
func (l *link) fail() {
	l.mu.Lock()
	l.over = true
	lost, watches := l.pending, l.watches
	l.pending, l.watches = nil, nil
	l.mu.Unlock()
	for _, p := range lost {
		if p.b.left > 0 {
			p.b.left = 0
			p.b.finish(l.why)
		}
	}
	for _, fired := range watches {
		for w := range fired {
			w.Fire()
		}
	}
}

// patience is for how long a server may say nothing to what it was asked before the connection counts as dead. It is short, so
// that a lease outlives a connection that is cut off in silence. A server that is slow gets more of it: after each silence twice as much,
// and after an answer twice what that took, for a few answers.
type patience struct {
	mu   sync.Mutex
	bear time.Duration // by the shortest lease
	slow time.Duration // by the latest answers
}

const (
	bearLeast = 500 * time.Millisecond
	bearMost  = 2 * time.Second
	// bearShare is the part of the shortest lease that a silence may take. A renewal begins when a third of it has passed.
	bearShare = 6
)

// Bear says how long the shortest lease is that this client holds; 0: it holds none.
func (c *Client) Bear(shortest time.Duration) {
	c.bears.mu.Lock()
	defer c.bears.mu.Unlock()
	c.bears.bear = bearMost
	if shortest > 0 {
		c.bears.bear = min(max(shortest/bearShare, bearLeast), bearMost)
	}
}

func (p *patience) limit(most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now(most)
}

func (p *patience) now(most time.Duration) time.Duration {
	return min(max(cmp.Or(p.bear, bearMost), p.slow), most)
}

// silent notes that nothing came for as long as that.
func (p *patience) silent(most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = 2 * p.now(most)
}

func (p *patience) answered(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = max(p.slow-p.slow/4, 2*took)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// conn is one client's connection and the one to the server that belongs to it.
type conn struct {
	proxy *Proxy
	id    int
	ctx   context.Context // ends with the connection
	end   context.CancelFunc

	mu   sync.Mutex
	ends [2]net.Conn    // the client's and the server's: a Direction reads from its own
	how  func(net.Conn) // how the connection was ended, nil before
}

func newConn(p *Proxy, id int, client net.Conn) *conn {
	ctx, cancel := context.WithCancel(context.Background())
	return &conn{proxy: p, id: id, ctx: ctx, end: cancel, ends: [2]net.Conn{Up: client}}
}

// run connects to the target, carries both directions, and returns once both
// have ended.
func (c *conn) run() {
	var d net.Dialer
	network, target := "tcp", c.proxy.Target()
	if strings.Contains(target, "/") {
		network = "unix"
	}
	server, err := d.DialContext(c.ctx, network, target)
	if err != nil {
		c.reset()
		return
	}
	if !c.attach(server) {
		return
	}
	var both sync.WaitGroup
	for _, dir := range []Direction{Up, Down} {
		w := &wire{conn: c, dir: dir, src: c.ends[dir], dst: c.ends[1-dir], filled: make(chan struct{}, 1)}
		both.Go(w.read)
		both.Go(w.write)
	}
	both.Wait()
	c.close()
}

// attach adds the server's side. A connection that has ended in between ends it
// in the same way, and reports false.
func (c *conn) attach(server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.how != nil {
		c.how(server)
		return false
	}
	c.ends[Down] = server
	return true
}

func (c *conn) close() { c.finish(func(end net.Conn) { _ = end.Close() }) }

func (c *conn) reset() { c.finish(reset) }

func (c *conn) finish(how func(net.Conn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.how != nil {
		return
	}
	c.how = how
	c.end()
	for _, end := range c.ends {
		if end != nil {
			how(end)
		}
	}
}

// reset closes a connection in the way that tells the other side at once that
// it is broken.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails only on a connection that is closed already
	}
	_ = c.Close()
}

// wire is one direction of a connection: one goroutine reads, another writes
// each parcel once it is due, so that a delay holds up nothing behind it.
type wire struct {
	conn     *conn
	dir      Direction
	src, dst net.Conn

	mu     sync.Mutex
	queue  []parcel
	filled chan struct{} // has room for one
}

// parcel is a chunk under way, or the end of the stream.
type parcel struct {
	data []byte
	end  error // io.EOF for an orderly end
	due  time.Time
}

func (w *wire) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := w.src.Read(buf)
		f, _ := w.conn.proxy.faults()
		due := time.Now().Add(f.delay / 2)
		if n > 0 {
			w.push(parcel{data: bytes.Clone(buf[:n]), due: due})
		}
		if err != nil {
			w.push(parcel{end: err, due: due})
			return
		}
	}
}

func (w *wire) push(p parcel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, p)
	select {
	case w.filled <- struct{}{}:
	default: // a signal is there already
	}
}

// pop returns what was pushed since, waiting for the first of it. ok is false
// once the connection was closed.
func (w *wire) pop() (ps []parcel, ok bool) {
	select {
	case <-w.filled:
	case <-w.conn.ctx.Done():
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ps, w.queue = w.queue, nil
	return ps, true
}

func (w *wire) write() {
	for {
		ps, ok := w.pop()
		for _, p := range ps {
			ok = ok && w.deliver(p)
		}
		if !ok {
			return
		}
	}
}

// deliver sends one parcel when it is due, and reports false when nothing comes
// after it.
func (w *wire) deliver(p parcel) bool {
	if !w.wait(p.due) {
		return false
	}
	if p.end != nil {
		w.finish(p.end)
		return false
	}
	// Before the hook, which may change the faults for what comes next.
	f, _ := w.conn.proxy.faults()
	drop := w.conn.proxy.drops(Chunk{Conn: w.conn.id, Dir: w.dir, Data: p.data})
	if !drop && !f.swallow[w.dir] {
		// A side that is gone says so to its reader: the other wire
		// carries the news, by its own rules.
		_, _ = w.dst.Write(p.data)
	}
	return true
}

// wait reports false when the connection was closed before.
func (w *wire) wait(due time.Time) bool {
	d := time.Until(due)
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.conn.ctx.Done():
		return false
	}
}

// finish passes on that the stream has ended, once the link lets it through.
func (w *wire) finish(end error) {
	for {
		f, changed := w.conn.proxy.faults()
		if !f.swallow[w.dir] {
			break
		}
		select {
		case <-changed:
		case <-w.conn.ctx.Done():
			return
		}
	}
	if t, ok := w.dst.(*net.TCPConn); ok && errors.Is(end, io.EOF) {
		_ = t.CloseWrite() // fails only when that side is gone, too
		return
	}
	w.conn.reset()
}

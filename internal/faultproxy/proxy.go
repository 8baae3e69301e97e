// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package faultproxy puts a bad network between a test and a server: a TCP
// proxy with faults that can be set at any moment and take effect on established
// connections, too.
//
// It imports testing, so only tests, and the other packages for tests, may
// import it; the linter holds that.
package faultproxy

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is the way that bytes travel.
type Direction uint8

// The directions.
const (
	Up   Direction = iota // from the client to the server
	Down                  // from the server to the client
)

// A Chunk is what one read returned. TCP keeps no boundaries: a chunk may hold
// several requests, or a part of one. A small request that was sent alone is
// one chunk in practice.
type Chunk struct {
	Conn int // the number of the connection, from 1
	Dir  Direction
	Data []byte // valid during the call of the hook
}

// Proxy is a link to one server. Its methods may be called by any number of
// goroutines at once, and from a hook.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	target  string
	now     faults
	hook    func(Chunk) bool
	changed chan struct{} // closed, and replaced, whenever the faults change
	closed  bool
	count   int
	conns   map[*conn]struct{}
}

type faults struct {
	delay   time.Duration
	swallow [2]bool // by Direction
	refuse  bool
}

// New starts a proxy to target (host:port) on a free loopback port, without any
// fault. It ends with the test, with all its connections. A client that
// connects while the target cannot be reached is reset.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	return On(t, l, target)
}

// On is New for the connections of a listener. Of a target with a slash, the path of a unix socket, the listener is one, too.
func On(t testing.TB, l net.Listener, target string) *Proxy {
	p := &Proxy{
		target:   target,
		listener: l,
		changed:  make(chan struct{}),
		conns:    make(map[*conn]struct{}),
	}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Retarget directs new connections to another server. Existing ones stay where they
// are: Reset ends them.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Target returns the server of new connections.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Addr returns the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay makes every round trip d longer: bytes that the proxy reads from now on
// leave it d/2 later, in each direction. It is a latency and no limit of the
// bandwidth: any number of chunks is under way at once. Chunks keep their order,
// so a shorter delay does not overtake a longer one. The handshake of a new
// connection is not delayed.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *faults) { f.delay = d }) }

// Swallow makes the link a black hole in the given directions: bytes disappear,
// and so does the news that a side closed its connection, until the direction
// is open again. Connections stay open, and new ones are accepted. Bytes that
// were swallowed do not come back; a chunk that is being written at this moment
// still goes through.
func (p *Proxy) Swallow(up, down bool) {
	p.set(func(f *faults) { f.swallow = [2]bool{Up: up, Down: down} })
}

// Refuse makes new connections fail: they are reset at once. Existing ones go on.
func (p *Proxy) Refuse() { p.set(func(f *faults) { f.refuse = true }) }

// Clear undoes Delay, Swallow and Refuse. Bytes that are under way arrive when
// they would have; the hook stays.
func (p *Proxy) Clear() { p.set(func(f *faults) { *f = faults{} }) }

// Hook has f called with each chunk right before it leaves the proxy, also when
// the link swallows it. When f returns true the chunk is dropped. Faults that f
// sets apply from the next chunk on: f can let a reply pass and cut the link
// behind it. A call that does not return blocks its direction of its connection
// only. There is one call at a time for each direction of each connection, and any
// number at once over all. nil removes the hook.
func (p *Proxy) Hook(f func(c Chunk) (drop bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = f
}

// Reconnect ends all faults after something was lost: connections begin anew, since TCP leaves
// nothing out.
func (p *Proxy) Reconnect() {
	p.Refuse()
	p.Reset()
	p.Clear()
}

// CloseAll closes every connection, to both sides, in the orderly way.
func (p *Proxy) CloseAll() {
	for _, c := range p.all() {
		c.close()
	}
}

// Reset breaks every connection, to both sides, with a TCP reset.
func (p *Proxy) Reset() {
	for _, c := range p.all() {
		c.reset()
	}
}

func (p *Proxy) set(change func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.now)
	close(p.changed)
	p.changed = make(chan struct{})
}

// faults returns the faults of now, and a channel that is closed when they
// change.
func (p *Proxy) faults() (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, p.changed
}

// drops asks the hook about a chunk.
func (p *Proxy) drops(c Chunk) bool {
	p.mu.Lock()
	f := p.hook
	p.mu.Unlock()
	return f != nil && f(c)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // only closing the listener ends it
		}
		c := p.admit(client)
		if c == nil {
			reset(client)
			continue
		}
		p.running.Go(func() {
			c.run()
			p.forget(c)
		})
	}
}

// admit returns nil when the client is refused.
func (p *Proxy) admit(client net.Conn) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.now.refuse {
		return nil
	}
	p.count++
	c := newConn(p, p.count, client)
	p.conns[c] = struct{}{}
	return c
}

func (p *Proxy) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) all() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		all = append(all, c)
	}
	return all
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.CloseAll()
	p.running.Wait()
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
)

const (
	limit = time.Minute           // for what must happen: far more than it takes
	quiet = 50 * time.Millisecond // how long we listen for what must not happen
)

// peer is one side of a connection.
type peer struct {
	t testing.TB
	c net.Conn
}

func (p peer) send(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.c, s); err != nil {
		p.t.Fatal(err)
	}
}

func (p peer) expect(want string) {
	p.t.Helper()
	got := make([]byte, len(want))
	p.deadline(limit)
	if _, err := io.ReadFull(p.c, got); err != nil || string(got) != want {
		p.t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func (p peer) expectEnd(want error) {
	p.t.Helper()
	p.deadline(limit)
	if n, err := p.c.Read(make([]byte, 1)); !errors.Is(err, want) {
		p.t.Fatalf("read %d bytes, %v; want %v", n, err, want)
	}
}

func (p peer) expectSilence() {
	p.t.Helper()
	p.deadline(quiet)
	if n, err := p.c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

func (p peer) deadline(d time.Duration) {
	p.t.Helper()
	if err := p.c.SetReadDeadline(time.Now().Add(d)); err != nil {
		p.t.Fatal(err)
	}
}

// link is a proxy and the server behind it.
type link struct {
	*faultproxy.Proxy
	t        testing.TB
	accepted chan net.Conn
}

func newLink(t testing.TB) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	t.Cleanup(func() { l.Close() })
	return &link{Proxy: faultproxy.New(t, l.Addr().String()), t: t, accepted: accepted}
}

func (l *link) connect() (client, server peer) {
	l.t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	client = peer{l.t, c}
	select {
	case c := <-l.accepted:
		l.t.Cleanup(func() { c.Close() })
		return client, peer{l.t, c}
	case <-time.After(limit):
		l.t.Fatal("the proxy did not connect to its target")
		return
	}
}

// expectRefused dials: the reset may arrive before or after Dial returns.
func (l *link) expectRefused() {
	l.t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err == nil {
		defer c.Close()
		peer{l.t, c}.expectEnd(syscall.ECONNRESET)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		l.t.Fatal(err)
	}
}

func TestPassesBytesAndEnds(t *testing.T) {
	l := newLink(t)
	client, server := l.connect()
	client.send("hello")
	server.expect("hello")
	server.send("world")
	client.expect("world")
	client.c.Close()
	server.expectEnd(io.EOF)

	client, server = l.connect()
	server.send("last words")
	server.c.Close()
	client.expect("last words")
	client.expectEnd(io.EOF)
}

func TestDelayIsARoundTrip(t *testing.T) {
	const d = 400 * time.Millisecond
	lost := stall.Watch(t)
	l := newLink(t)
	client, server := l.connect()
	l.Delay(d)
	start := time.Now()
	client.send("ping")
	server.expect("ping")
	if half := time.Since(start); half < d/2 || half >= d+lost() {
		t.Errorf("one way took %v, want half of %v", half, d)
	}
	server.send("pong")
	client.expect("pong")
	if whole := time.Since(start); whole < d {
		t.Errorf("the round trip took %v, want at least %v", whole, d)
	}

	l.Clear()
	start = time.Now()
	client.send("ping")
	server.expect("ping")
	if got := time.Since(start); got >= d/2+lost() {
		t.Errorf("after Clear one way took %v", got)
	}
}

// One chunk after the other would take 128 times half of the delay: more than
// the limit.
func TestDelayLimitsNoBandwidth(t *testing.T) {
	const d, size = 2 * time.Second, 4 << 20
	l := newLink(t)
	client, server := l.connect()
	l.Delay(d)
	sent := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	go client.c.Write(sent)
	got := make([]byte, size)
	server.deadline(limit)
	if _, err := io.ReadFull(server.c, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("not what was sent (%v)", err)
	}
}

func TestSwallow(t *testing.T) {
	l := newLink(t)
	seen := make(chan string, 8)
	l.Hook(func(c faultproxy.Chunk) bool {
		seen <- string(c.Data)
		return false
	})
	client, server := l.connect()
	for _, c := range []struct {
		dir      faultproxy.Direction
		from, to peer
	}{{faultproxy.Up, client, server}, {faultproxy.Down, server, client}} {
		l.Swallow(c.dir == faultproxy.Up, c.dir == faultproxy.Down)
		c.from.send("lost")
		await(t, seen, "lost")
		c.to.send("other way")
		await(t, seen, "other way")
		c.from.expect("other way")
		c.to.expectSilence()
		l.Clear()
		c.from.send("found")
		await(t, seen, "found")
		c.to.expect("found")
	}
}

func await(t testing.TB, seen <-chan string, want string) {
	t.Helper()
	select {
	case got := <-seen:
		if got != want {
			t.Fatalf("the hook saw %q, want %q", got, want)
		}
	case <-time.After(limit):
		t.Fatalf("the hook did not see %q", want)
	}
}

// In a black hole the other side does not learn that a connection was closed.
func TestSwallowHidesTheEnd(t *testing.T) {
	l := newLink(t)
	client, server := l.connect()
	l.Swallow(true, false)
	client.c.Close()
	server.expectSilence()
	l.Clear()
	server.expectEnd(io.EOF)
}

func TestResetAndCloseAll(t *testing.T) {
	l := newLink(t)
	client, server := l.connect()
	client.send("x") // what has arrived was carried by an established link
	server.expect("x")
	l.Reset()
	client.expectEnd(syscall.ECONNRESET)
	server.expectEnd(syscall.ECONNRESET)

	client, server = l.connect()
	l.CloseAll()
	client.expectEnd(io.EOF)
	server.expectEnd(io.EOF)
}

// A reset by one side arrives at the other as one.
func TestResetPassesThrough(t *testing.T) {
	client, server := newLink(t).connect()
	if err := server.c.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	server.c.Close()
	client.expectEnd(syscall.ECONNRESET)
}

func TestRefuse(t *testing.T) {
	l := newLink(t)
	client, server := l.connect()
	l.Refuse()
	l.expectRefused()
	client.send("old")
	server.expect("old")
	l.Clear()
	client, server = l.connect()
	client.send("new")
	server.expect("new")
}

func TestTargetGone(t *testing.T) {
	p := faultproxy.New(t, faultproxy.Nobody(t))
	(&link{Proxy: p, t: t}).expectRefused()
}

func TestRetarget(t *testing.T) {
	l, other := newLink(t), newLink(t)
	client, server := l.connect()
	l.Retarget(other.Addr())
	client.send("stays")
	server.expect("stays")
	l.Reset()
	server.expectEnd(syscall.ECONNRESET)
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer{t, c}.send("moves")
	select {
	case got := <-other.accepted:
		defer got.Close()
		peer{t, got}.expect("moves")
	case <-time.After(limit):
		t.Fatal("the new target was not connected to")
	}
}

func TestHookDropsOneChunk(t *testing.T) {
	l := newLink(t)
	l.Hook(func(c faultproxy.Chunk) bool {
		return c.Dir == faultproxy.Up && string(c.Data) == "EVALSHA"
	})
	client, server := l.connect()
	client.send("EVALSHA")
	server.expectSilence()
	client.send("PING")
	server.expect("PING")
	l.Hook(nil)
	client.send("EVALSHA")
	server.expect("EVALSHA")
}

// A hook lets a reply pass and cuts the link behind it.
func TestHookCutsBehindAChunk(t *testing.T) {
	l := newLink(t)
	l.Hook(func(c faultproxy.Chunk) bool {
		if string(c.Data) == "renewed" {
			l.Swallow(true, true)
		}
		return false
	})
	client, server := l.connect()
	server.send("renewed")
	client.expect("renewed")
	client.send("again")
	server.expectSilence()
	server.send("late")
	client.expectSilence()
}

// A hook that waits makes a message late, without holding up other connections.
func TestHookHolds(t *testing.T) {
	l := newLink(t)
	held, free := make(chan struct{}), make(chan struct{})
	l.Hook(func(c faultproxy.Chunk) bool {
		if c.Conn == 1 && c.Dir == faultproxy.Up {
			close(held)
			<-free
		}
		return false
	})
	late, lateServer := l.connect()
	client, server := l.connect()
	late.send("try")
	<-held
	client.send("release")
	server.expect("release")
	lateServer.send("push")
	late.expect("push")
	close(free)
	lateServer.expect("try")
}

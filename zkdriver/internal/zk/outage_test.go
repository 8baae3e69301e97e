// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
)

// A connection that is cut off in silence ends by the request that has no answer, long before the session's time is over, and the
// session goes on over another.
func TestSilentConnectionEnds(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, testserver.ZooKeeper(t).Addr())
	deaf := deafens(p)
	c := New(Config{Servers: []string{p.Addr()}, Timeout: time.Hour})
	defer c.Close()
	s := session(t, c)
	acl := []ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	do(t, s, Create("/lives", nil, acl, Ephemeral))
	deaf()
	answered := make(chan error, 1)
	if err := s.Start(func(err error) { answered <- err }, Set("/lives", nil)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-answered:
		if !errors.Is(err, ErrLost) || !errors.Is(err, io.EOF) {
			t.Errorf("the request ended with %v", err)
		}
	case <-time.After(soon):
		t.Fatalf("after %v the connection still counts as alive", soon)
	}
	if again := session(t, c); again != s {
		t.Error("the session did not go on")
	}
	do(t, s, Set("/lives", nil))
}

// deafens returns what makes the connections of now a black hole; new ones work.
func deafens(p *faultproxy.Proxy) (deaf func()) {
	var latest, upTo atomic.Int64
	p.Hook(func(c faultproxy.Chunk) bool {
		latest.Store(max(latest.Load(), int64(c.Conn)))
		return int64(c.Conn) <= upTo.Load()
	})
	return func() { upTo.Store(latest.Load()) }
}

// A server that is slow is given more time, and a server that is quick again less.
func TestPatienceFollowsTheServer(t *testing.T) {
	t.Parallel()
	c := New(Config{})
	const most = 15 * time.Second
	limit := func(want time.Duration) {
		t.Helper()
		if got := c.bears.limit(most); got != want {
			t.Errorf("it bears %v, want %v", got, want)
		}
	}
	limit(bearMost)
	c.Bear(6 * time.Second)
	limit(time.Second)
	c.bears.silent(most)
	limit(2 * time.Second)
	c.bears.silent(most)
	c.bears.silent(most)
	limit(8 * time.Second)
	c.bears.silent(most)
	limit(most)
	for range 20 {
		c.bears.answered(time.Millisecond)
	}
	limit(time.Second)
	c.bears.answered(3 * time.Second)
	limit(6 * time.Second)
}

// A server that lost all its data refuses a client that has seen more. When the session's time is over the client begins another.
func TestEmptiedServer(t *testing.T) {
	t.Parallel()
	server := testserver.ZooKeeper(t)
	over := make(chan *Session, 1)
	c := New(Config{Servers: []string{server.Addr()}, Timeout: 6 * testserver.ZooKeeperTick, Ended: func(s *Session) { over <- s }})
	defer c.Close()
	s := session(t, c)
	acl := []ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	for range 20 { // which the emptied server has not done, for long
		do(t, s, Create("/some-", nil, acl, EphemeralSequential))
	}
	server.Kill()
	if err := os.RemoveAll(filepath.Join(server.Dir(), "version-2")); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	select {
	case ended := <-over:
		if ended != s {
			t.Error("another session has ended")
		}
	case <-time.After(soon):
		_, err := c.Session(t.Context())
		t.Fatalf("after %v the session is not over: %v", soon, err)
	}
	for limit := time.Now().Add(soon); ; {
		again, err := c.Session(t.Context())
		if err == nil {
			do(t, again, Create("/again", nil, acl, Ephemeral))
			return
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
}

// The nodes of a session that a client gave up by the clock are gone at once, where the servers still have the session.
func TestLapsedSessionIsEnded(t *testing.T) {
	t.Parallel()
	server := testserver.ZooKeeper(t)
	p := faultproxy.New(t, server.Addr())
	c := New(Config{Servers: []string{p.Addr()}, Timeout: time.Hour})
	defer c.Close()
	s := session(t, c)
	acl := []ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	do(t, s, Create("/old", nil, acl, Ephemeral))
	s.mu.Lock()
	for i := range s.touched {
		s.touched[i].sent = s.touched[i].sent.Add(-2 * time.Hour)
	}
	s.mu.Unlock()
	p.Reset()
	for limit := time.Now().Add(soon); c.current() == s; time.Sleep(time.Millisecond) { // no event says so
		if time.Now().After(limit) {
			t.Fatal("the session is not over")
		}
	}
	again := session(t, c)
	gone := Exists("/old")
	if err := again.Do(t.Context(), gone); err != nil || !errors.Is(gone.Err, ErrNoNode) {
		t.Errorf("the node of the session before: %v, %v", err, gone.Err)
	}
}

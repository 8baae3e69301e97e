// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// A session that sends a write through a follower may expire earlier than its time-out after it: the leader commits the
// write, and has not heard of it as a sign of life when the follower is cut off. Never earlier than Assured says.
func TestSessionMayEndSoonAfterAWrite(t *testing.T) {
	t.Parallel()
	const timeout = 40 * testserver.ZooKeeperTick
	all := testserver.ZooKeepers(t, 3)
	leads := testserver.ZooKeeperLeader(t, all)
	follower, other := all[(leads+1)%3], all[leads]
	quiet := New(Config{Servers: []string{follower.Addr()}, Timeout: timeout})
	quiet.quiet = true
	defer quiet.Close()
	watcher := New(Config{Servers: []string{other.Addr()}, Timeout: time.Minute})
	defer watcher.Close()
	s := session(t, quiet)
	acl := []ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	do(t, s, Create("/lives", nil, acl, Ephemeral))
	w := session(t, watcher)
	gone := make(chan struct{})
	do(t, w, Sync("/lives"), Children("/lives", &Watch{Fire: func() { close(gone) }}))
	time.Sleep(timeout / 2)    // without a sign of life
	do(t, s, Exists("/lives")) // a sign of life that the leader has not heard of, either
	written := time.Now()
	do(t, s, Set("/lives", nil))
	assured := s.Assured()
	follower.Stop()
	<-gone
	t.Logf("a time-out of %v: it ended %v after the write, and was assured for %v", timeout, time.Since(written), assured.Sub(written))
	if now := time.Now(); now.Before(assured) {
		t.Errorf("it ended %v before the moment until which it was assured", assured.Sub(now))
	}
	follower.Cont()
}

// do carries out calls that must succeed.
func do(t testing.TB, s *Session, calls ...*Call) {
	t.Helper()
	if err := s.Do(t.Context(), calls...); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(calls, func(c *Call) bool { return c.Err != nil }); i >= 0 {
		t.Fatalf("call %d: %v", i, calls[i].Err)
	}
}

func session(t testing.TB, c *Client) *Session {
	t.Helper()
	s, err := c.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

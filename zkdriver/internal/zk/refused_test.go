// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// A transaction that was refused because the session is over proves nothing, although its header has no error.
func TestRefusedMultiProvesNothing(t *testing.T) {
	t.Parallel()
	var answer encoder
	answer.int(-1)
	answer.bool(false)
	answer.int(int32(ErrSessionExpired))
	answer.int(int32(ErrSessionExpired))
	answer.int(-1)
	answer.bool(true)
	answer.int(-1)
	now := time.Now()
	s := &Session{timeout: time.Minute}
	s.note(touch{sent: now.Add(-time.Minute / 2), answered: now.Add(-time.Minute / 2)})
	l := &link{s: s, c: New(Config{})}
	call, b := Multi(Delete("/a")), &batch{left: 1, done: make(chan struct{})}
	l.pending = []pending{{1, call, b, now}}
	if !l.reply(1, 0, &decoder{b: answer.b}) || !errors.Is(call.Err, ErrSessionExpired) {
		t.Fatalf("the answer is %v", call.Err)
	}
	if until := s.Assured(); !until.IsZero() {
		t.Errorf("the session is assured for %v", until.Sub(now))
	}
}

// A client that the servers do not let in leaves one session behind however often it tries, and none when it is closed.
func TestRefusedClientLeavesNoSessions(t *testing.T) {
	t.Parallel()
	server := testserver.ZooKeeper(t)
	c := New(Config{Servers: []string{server.Addr()}, Timeout: time.Hour, Auth: func(context.Context) ([]Auth, error) {
		return []Auth{{Scheme: "unheard-of", Data: []byte("me")}}, nil
	}})
	c.ends = soon
	defer c.Close()
	for range 3 {
		if s, err := c.Session(t.Context()); !errors.Is(err, ErrAuthFailed) {
			t.Fatalf("session %v, %v", s, err)
		}
	}
	if n := sessions(t, server); n > 1 {
		t.Errorf("%d sessions after three attempts", n)
	}
	_ = c.Close()
	if n := sessions(t, server); n > 0 {
		t.Errorf("%d sessions after Close", n)
	}
}

// soon bounds what must happen, far above what it takes.
const soon = time.Minute

// sessions is how many a server keeps.
func sessions(t *testing.T, server *testserver.Server) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	text, err := server.FourLetters(ctx, "dump")
	for err != nil && ctx.Err() == nil { // a busy server takes longer than that waits
		text, err = server.FourLetters(ctx, "dump")
	}
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ = strings.Cut(text, "ephemeral nodes") // after it are connections
	for line := range strings.SplitSeq(text, "\n") {
		var some int
		if _, err := fmt.Sscanf(line, "%d expire at", &some); err == nil {
			n += some
		}
	}
	return n
}

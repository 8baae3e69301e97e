// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
)

// The first answer of a server counts as its last words only while there is no other.
func TestLastWords(t *testing.T) {
	for _, answers := range [][]string{{"-ERR max number of clients reached\r\n"}, {"-ERR unknown command\r\n", "+OK\r\n"}} {
		c, server := net.Pipe()
		looked := &conn{Conn: c, seen: &sights{scheme: "redis"}, addr: "a", replies: &replies{}}
		go func() {
			for _, a := range answers {
				_, _ = io.WriteString(server, a) // it is read
			}
			_ = server.Close()
		}()
		_, err := io.ReadAll(struct{ io.Reader }{looked})
		if at, words := looked.seen.of("a").stage, errors.As(err, new(*lastWords)); words != (len(answers) == 1) || words != (at == heard) {
			t.Errorf("after %q: %v, stage %d", answers, err, at)
		}
	}
}

// A connection that was not tried, since the time for it was over, says nothing of the server.
func TestLateDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	s := &sights{scheme: "postgres"}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := s.watch(plainly)(ctx, "tcp", l.Addr().String())
	must(t, err)
	_ = c.Close()
	cancel()
	if _, err := s.watch(plainly)(ctx, "tcp", l.Addr().String()); err == nil || s.of("").stage != mute {
		t.Errorf("%v, stage %d", err, s.of("").stage)
	}
}

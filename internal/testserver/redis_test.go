// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// limit bounds what must happen: far more than it takes.
const limit = time.Minute

// client speaks Redis' inline commands.
type client struct {
	t testing.TB
	c net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, network, address string) *client {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) send(command string) {
	c.t.Helper()
	if _, err := io.WriteString(c.c, command+"\r\n"); err != nil {
		c.t.Fatal(err)
	}
}

// line returns the first line of a reply.
func (c *client) line(within time.Duration) (string, error) {
	if err := c.c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	s, err := c.r.ReadString('\n')
	return strings.TrimSpace(s), err
}

func (c *client) do(command, want string) {
	c.t.Helper()
	c.send(command)
	if got, err := c.line(limit); got != want || err != nil {
		c.t.Fatalf("%s: got %q, %v; want %q", command, got, err, want)
	}
}

func TestRedisAnswersAndDiesWithItsTest(t *testing.T) {
	var s *Server
	var watch *client
	t.Run("running", func(st *testing.T) {
		s = Redis(st)
		other := Redis(st)
		if s.Addr() == other.Addr() {
			st.Fatalf("two servers at %s", s.Addr())
		}
		dial(st, "tcp", s.Addr()).do("PING", "+PONG")
		dial(st, "unix", s.Socket()).do("PING", "+PONG")
		watch = dial(t, "tcp", s.Addr())
	})
	if _, err := watch.line(limit); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection to a server whose test has ended: %v, want that it was closed", err)
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the server's directory is left: %v", err)
	}
}

func TestRedisArgsWinOverDefaults(t *testing.T) {
	s := Redis(t, "--appendonly", "yes", "--appendfsync", "always", "--requirepass", "secret")
	c := dial(t, "tcp", s.Addr())
	c.do("PING", "-NOAUTH Authentication required.")
	c.do("AUTH secret", "+OK")
	c.do("SET a b", "+OK")
	s.Restart()
	c = dial(t, "tcp", s.Addr())
	c.do("AUTH secret", "+OK")
	c.do("GET a", "$1")
}

func TestRestartKeepsThePortAndForgets(t *testing.T) {
	s := Redis(t)
	addr, pid := s.Addr(), s.PID()
	dial(t, "tcp", addr).do("SET a b", "+OK")
	s.Kill()
	s.Kill()
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Fatal("a killed server accepts a connection")
	}
	s.Restart()
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("after Restart: %s pid %d; before: %s pid %d", s.Addr(), s.PID(), addr, pid)
	}
	dial(t, "tcp", addr).do("GET a", "$-1")
}

func TestStopAndCont(t *testing.T) {
	s := Redis(t)
	c := dial(t, "tcp", s.Addr())
	c.do("PING", "+PONG")
	s.Stop()
	s.Stop()
	c.send("PING")
	if got, err := c.line(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a stopped server: %q, %v", got, err)
	}
	s.Cont()
	if got, err := c.line(limit); got != "+PONG" {
		t.Fatalf("after Cont: %q, %v", got, err)
	}
	s.Stop() // and the test's end kills it all the same
}

// A port that was free and is taken when the server binds it is exchanged.
func TestTakenPortIsExchanged(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	first := Redis(t)
	chosen := 0
	s := launch(t, first.spec, func() (int, error) {
		if chosen++; chosen == 1 {
			return busy.Addr().(*net.TCPAddr).Port, nil
		}
		return freePort()
	})
	if chosen < 2 {
		t.Errorf("%d ports were tried, want at least 2", chosen)
	}
	dial(t, "tcp", s.Addr()).do("PING", "+PONG")
}

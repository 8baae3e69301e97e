// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Redis starts a redis-server for the test, without persistence, that listens
// on a free loopback port and a unix socket. args are further arguments of
// redis-server, and win over the defaults: "--appendonly", "yes". It skips or
// fails the test where redis-server is missing, see Require.
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	return RedisIn(t, nil, args...)
}

// RedisIn is Redis with more in the environment, each "NAME=value", over every
// Restart.
func RedisIn(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	return RedisUnder(t, nil, env, args...)
}

// RedisUnder is RedisIn with the server started, over every Restart, by another
// program, which must turn into it by exec(3): "nsenter", "--net=…", "--". No
// program means that the server is started itself.
func RedisUnder(t testing.TB, by, env []string, args ...string) *Server {
	t.Helper()
	return redisWith(t, by, env, func(*Server) []string { return args })
}

// redisWith has arguments that depend on the server's port.
func redisWith(t testing.TB, by, env []string, args func(*Server) []string) *Server {
	t.Helper()
	path := require(t, "redis", binaries)
	return launch(t, spec{
		path: path,
		by:   by,
		args: func(s *Server) []string {
			return append([]string{
				"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port),
				"--unixsocket", s.Socket(), "--dir", s.dir,
				"--save", "", "--appendonly", "no", "--daemonize", "no",
			}, args(s)...)
		},
		env:   env,
		ready: pingRedis,
		taken: "Address already in use",
	}, freePort)
}

// Promote makes a replica a master, as Sentinel does it: the server that it
// followed is not asked.
func (s *Server) Promote() {
	s.t.Helper()
	s.order("REPLICAOF NO ONE", "+OK")
}

// Follow makes the server a replica of another, and returns once it has all of its
// data and the other counts it.
func (s *Server) Follow(master *Server) {
	s.t.Helper()
	s.follow(master, master.port, s.port)
}

// follow is Follow with the ports that the two announce.
func (s *Server) follow(master *Server, theirs, own int) {
	s.t.Helper()
	s.order(fmt.Sprintf("REPLICAOF 127.0.0.1 %d", theirs), "+OK")
	until(s.t, "it follows the other", func() bool {
		return strings.Contains(s.info(), "master_link_status:up") && strings.Contains(master.info(), fmt.Sprintf("port=%d,state=online", own))
	})
}

// info is what INFO says of replication.
func (s *Server) info() string {
	s.t.Helper()
	return s.order("INFO replication", "$")
}

// order has the server carry out one command, over the unix socket, and returns
// the answer, which must begin with want.
func (s *Server) order(command, want string) string {
	s.t.Helper()
	return s.ask("unix", s.Socket(), want, strings.Fields(command)...)
}

// ask has the server carry out one command and returns the answer, which must begin with want.
func (s *Server) ask(network, addr, want string, args ...string) string {
	s.t.Helper()
	answer, err := exchange(network, addr, args)
	if err != nil || !strings.HasPrefix(answer, want) {
		s.t.Fatalf("testserver: %s says %q (%v)", args, answer, err)
	}
	return answer
}

// says is what the server answers to a command, if it does.
func (s *Server) says(command string) string {
	answer, err := exchange("unix", s.Socket(), strings.Fields(command))
	if err != nil {
		return "" // it does not run, or ended all connections since it became a replica
	}
	return answer
}

// exchange sends one command, and returns the answer.
func exchange(network, addr string, args []string) (answer string, err error) {
	var b strings.Builder
	lines := [][]string{args}
	if network == "unix" { // a Sentinel does not know it, and answers what it was asked before it sees the end
		lines = append(lines, []string{"QUIT"})
	}
	for _, line := range lines {
		fmt.Fprintf(&b, "*%d\r\n", len(line))
		for _, arg := range line {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
		}
	}
	const limit = 30 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit) // orders are given at a test's end, too, when its context has ended
	defer cancel()
	err = talk(ctx, network, addr, []byte(b.String()), limit, func(c net.Conn) error {
		if tcp, ok := c.(*net.TCPConn); ok {
			if err := tcp.CloseWrite(); err != nil {
				return err
			}
		}
		all, err := io.ReadAll(c)
		answer = string(all)
		return err
	})
	return answer, err
}

// Socket returns the path of the server's unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "sock") }

// pingRedis asks over the unix socket, because what answers there is the server
// of this directory and no other; Redis listens on its port before. It gives
// the password that the server was started with: without, the answer is about
// the password even while the server still loads its data.
func pingRedis(ctx context.Context, s *Server) error {
	ask, answers := "PING\r\n", 1
	args := s.spec.args(s)
	if i := slices.Index(args, "--requirepass"); i >= 0 {
		ask, answers = "AUTH "+args[i+1]+"\r\n"+ask, 2
	}
	return talk(ctx, "unix", s.Socket(), []byte(ask), time.Second, func(c net.Conn) error {
		r := bufio.NewReader(c)
		for range answers {
			line, err := r.ReadString('\n')
			if err != nil {
				return err
			}
			if strings.HasPrefix(line, "-LOADING") {
				return fmt.Errorf("it answers %q", strings.TrimSpace(line))
			}
		}
		return nil
	})
}

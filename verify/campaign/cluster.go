// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// node is one of the servers, and a link to it for each client.
type node struct {
	t      *testserver.Program
	server *testserver.Server
	spare  *testserver.Server // the replica to be promoted, or the old master
	keep   Persistence
	clock  *testserver.Clock // nil: the clock is right
	ahead  time.Duration     // of the right time, by all steps so far
	wired  *location         // its address in the real network; nil: it is behind proxies
	links  [clients]*faultproxy.Proxy
}

// newNode starts a server. Its clock can be stepped if fake is set.
func newNode(t *testserver.Program, keep Persistence, fake bool, wired *location) *node {
	n := &node{t: t, keep: keep, wired: wired}
	if fake {
		n.clock = testserver.NewClock(t)
	}
	n.server = n.start()
	for c := range n.links {
		if wired == nil {
			n.links[c] = faultproxy.New(t, n.server.Addr())
		}
	}
	return n
}

// addr returns the node's address for a client.
func (n *node) addr(client int) string {
	if n.wired != nil {
		return net.JoinHostPort(n.wired.addr, strconv.Itoa(n.server.Port()))
	}
	return n.links[client].Addr()
}

func (n *node) start() *testserver.Server {
	var env []string
	if n.clock != nil {
		env = n.clock.Env()
	}
	args := []string{"--repl-diskless-sync-delay", "0"} // so that a replica has the data when it is promoted
	switch n.keep {
	case KeepEverySec:
		args = append(args, "--appendonly", "yes", "--appendfsync", "everysec")
	case KeepAlways:
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	var by []string
	if n.wired != nil {
		by = n.wired.enter
		args = append(args, "--bind", "127.0.0.1", n.wired.addr, "--protected-mode", "no")
	}
	return testserver.RedisUnder(n.t, by, env, args...)
}

// commandLimit bounds a command of the campaign itself.
const commandLimit = 10 * time.Second

// direct connects to the server's unix socket, which has no faults.
func direct(s *testserver.Server) *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
}

// do sends commands to the server.
func (n *node) do(s *testserver.Server, commands ...[]any) error {
	rdb := direct(s)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(n.t.Context(), commandLimit)
	defer cancel()
	for _, c := range commands {
		if err := rdb.Do(ctx, c...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("%v: %w", c, err)
		}
	}
	return nil
}

// forget removes the killed server's files.
func (n *node) forget() {
	n.t.Must(errors.Join(
		os.RemoveAll(filepath.Join(n.server.Dir(), "dump.rdb")),
		os.RemoveAll(filepath.Join(n.server.Dir(), "appendonlydir"))))
}

// snapshot saves an RDB of the current data for later.
func (n *node) snapshot() {
	n.t.Must(n.do(n.server, []any{"save"}))
	n.t.Must(os.Rename(n.file("dump.rdb"), n.file("old.rdb")))
}

func (n *node) file(name string) string { return filepath.Join(n.server.Dir(), name) }

// tear cuts off the end of the killed server's AOF, as if it had not reached the
// disk before a power failure.
func (n *node) tear() {
	logs, err := filepath.Glob(filepath.Join(n.server.Dir(), "appendonlydir", "*.incr.aof"))
	n.t.Must(err)
	for _, log := range logs {
		info, err := os.Stat(log)
		n.t.Must(err)
		n.t.Must(os.Truncate(log, info.Size()*3/5))
	}
}

// replicate starts the replica that will replace this node, which is guarded, or not, where it is to go on.
func (n *node) replicate(how string) {
	n.spare = n.start()
	n.spare.Follow(n.server)
	if how == guarded {
		n.t.Must(n.do(n.server, []any{"config", "set", "min-replicas-to-write", "1", "min-replicas-max-lag", "5"}))
	}
}

// promote has the replica replace the server, which was killed, or goes on, for every so many clients.
func (n *node) promote(every int) {
	n.spare.Promote()
	n.server, n.spare = n.spare, n.server
	n.redirect(0, every)
}

// endSplit stops the old master, and redirects its clients to the new one.
func (n *node) endSplit() {
	n.spare.Kill()
	n.redirect(1, 2)
}

// redirect connects the links of some clients to the node's current server.
func (n *node) redirect(first, every int) {
	for c := first; c < clients; c += every {
		n.links[c].Retarget(n.server.Addr())
		n.links[c].Reset()
	}
}

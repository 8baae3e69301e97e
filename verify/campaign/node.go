// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// tear cuts off the end of the killed server's AOF, as if it had not reached the disk before a power failure.
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

// redises are the servers of Redis, and of Redlock.
type redises []*node

func (r redises) addrs(client int) (all []string) {
	for _, n := range r {
		all = append(all, n.addr(client))
	}
	return all
}

func (r redises) link(a Action, node int) { r[node].injectLink(a, a.Client) }

func (r redises) play(a Action) {
	for _, n := range a.Nodes {
		r[n].play(a)
	}
}

func (n *node) play(a Action) {
	switch a.Part {
	case Prepare:
		n.prepare(a)
	case Begin:
		n.begin(a)
	case End:
		n.end(a)
	}
}

func (n *node) prepare(a Action) {
	switch a.Kind {
	case RestartRDB:
		n.snapshot()
	case Promote, Split:
		n.replicate(a.How)
	}
}

func (n *node) begin(a Action) {
	switch a.Kind {
	case Flush, FlushHeldBack:
		n.t.Must(n.do(n.server, []any{"flushall"}))
	case Delete:
		for k := range keys {
			n.t.Must(n.do(n.server, []any{"del", fmt.Sprintf("lock:k%d", k), fmt.Sprintf("k%d", k)})) // hasp's, redsync's
		}
	case Evict:
		n.t.Must(n.do(n.server, []any{"config", "set", "maxmemory-policy", "volatile-lru"}, []any{"config", "set", "maxmemory", "1"}))
		_ = n.do(n.server, []any{"set", "x", "y"}) // evicts keys, and is then refused for lack of memory
	case ClockForward, ClockBack:
		n.step(a.By)
	case StopNode:
		n.server.Stop()
	case RefuseWrites:
		n.refuse(a.How)
	case Split:
		n.promote(2)
	default:
		n.server.Kill()
	}
}

// step sets the clock forward, or back.
func (n *node) step(by time.Duration) {
	n.ahead += by
	n.clock.Step(n.ahead)
}

func (n *node) end(a Action) {
	switch a.Kind {
	case FlushHeldBack:
		n.begin(a)
	case Evict:
		n.t.Must(n.do(n.server, []any{"config", "set", "maxmemory", "0"}, []any{"config", "set", "maxmemory-policy", "noeviction"}))
	case StopNode:
		n.server.Cont()
	case RefuseWrites:
		n.accept(a.How)
	case RestartEmpty, AllEmpty, ClockHeldBack:
		n.forget()
		n.server.Restart()
		if a.Kind == ClockHeldBack {
			n.step(a.By)
		}
	case RestartRDB:
		n.forget()
		n.t.Must(os.Rename(n.file("old.rdb"), n.file("dump.rdb")))
		n.server.Restart()
	case RestartTorn:
		n.tear()
		n.server.Restart()
	case RestartAOF:
		n.server.Restart()
	case Promote:
		n.promote(1)
	case Split:
		n.endSplit()
	}
}

// injectLink injects a fault into the link of one client.
func (n *node) injectLink(a Action, client int) {
	l := n.links[client]
	if a.Part == End {
		l.Clear()
		l.Hook(nil)
		return
	}
	if a.Kind != Duplicate && a.Kind != Late {
		disturb(l, a)
		return
	}
	addr := l.Target()
	l.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir != faultproxy.Up {
			return false
		}
		later(addr, bytes.Clone(c.Data), a.By)
		return a.Kind == Late
	})
}

// disturb begins a fault that the links to every engine may have.
func disturb(l *faultproxy.Proxy, a Action) {
	switch a.Kind {
	case Partition, Expire, CutAll, CutMaster:
		l.Swallow(true, true)
	case LoseRequests:
		l.Swallow(true, false)
	case LoseReplies:
		l.Swallow(false, true)
	case Delay:
		l.Delay(a.By)
	case ResetLinks:
		l.Reset()
	}
}

// later delivers a request on a connection of its own, unless the server is gone, and drops the reply.
func later(addr string, request []byte, after time.Duration) {
	time.AfterFunc(after, func() {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return
		}
		if _, err := c.Write(request); err == nil {
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c) // until the server has read it all
		}
	})
}

// refusing has, for each refusal, the command that begins it, and the command that ends it.
//
// Redis checks only the first write of a script, so no script is interrupted halfway.
var refusing = map[string][2][]any{
	// It refuses commands that may take memory; DEL passes, and with it whatever follows it in a script.
	"OOM":        {{"config", "set", "maxmemory", "1"}, {"config", "set", "maxmemory", "0"}},
	"NOREPLICAS": {{"config", "set", "min-replicas-to-write", "1"}, {"config", "set", "min-replicas-to-write", "0"}},
	"MISCONF":    {{"config", "set", "save", "3600 1000000"}, {"config", "set", "save", ""}},
	"READONLY":   {{"replicaof", "127.0.0.1", "1"}, {"replicaof", "no", "one"}}, // a replica of a master that does not exist
}

// refuse makes the node refuse writes from now on.
func (n *node) refuse(how string) {
	misconf := how == "MISCONF" // a snapshot fails, because a directory has the file's name
	if misconf {
		n.t.Must(os.RemoveAll(n.file("dump.rdb")))
		n.t.Must(os.Mkdir(n.file("dump.rdb"), 0o700))
	}
	n.t.Must(n.do(n.server, refusing[how][0]))
	if misconf && n.writes() == nil { // none has failed before
		n.t.Must(n.do(n.server, []any{"bgsave", "schedule"}))
	}
	for begun := now(); ; time.Sleep(10 * time.Millisecond) { // the snapshot is made in the background
		err := n.writes()
		if err != nil && strings.Contains(err.Error(), ": "+how+" ") {
			return
		}
		if now().Sub(begun) > commandLimit {
			n.t.Fatalf("the node does not refuse writes with %s: %v", how, err)
		}
	}
}

// accept makes the node accept writes again.
func (n *node) accept(how string) {
	n.t.Must(n.do(n.server, refusing[how][1]))
	if how == "MISCONF" {
		n.t.Must(os.RemoveAll(n.file("dump.rdb")))
	}
	n.t.Must(n.writes())
}

// writes returns nil if the server accepts a write.
func (n *node) writes() error { return n.do(n.server, []any{"set", "x", "y", "px", "1"}) }

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
)

// play carries out one action.
func (r *run) play(a Action) {
	switch {
	case a.Kind == ClientStop || a.Kind == ClientKill:
		r.injectClient(a)
	case a.Kind == CutAll:
		for c := range clients {
			a.Client = c
			for n := range r.s.on() {
				r.servers.link(a, n)
			}
		}
	case a.Client >= 0 && r.wires != nil:
		r.wires.play(a)
	case a.Client >= 0:
		for _, n := range a.Nodes {
			r.servers.link(a, n)
		}
	default:
		r.servers.play(a)
	}
}

// servers are the servers of a run: where a client finds them, and what is done to them and to the client's links.
type servers interface {
	addrs(client int) []string
	link(a Action, node int)
	play(a Action)
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

// later delivers a request on a connection of its own, unless the server is gone,
// and drops the reply.
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

func (r *run) injectClient(a Action) {
	m := r.of(a.Client, never)
	var err error
	switch {
	case a.Kind == ClientStop && a.Part == Begin:
		err = m.Pause()
	case a.Kind == ClientStop:
		err = m.Resume()
	case a.Part == Begin:
		r.stage.Do(func() { m.Killed = true })
		m.Kill()
	default:
		r.stage.Start(a.Client)
		err = r.stage.Err()
	}
	if errors.Is(err, os.ErrProcessDone) {
		<-m.Ended
		err = fmt.Errorf("client %d ended by itself:\n%s", m.ID, m.Errors())
	}
	if err != nil {
		r.t.Must(errors.Join(fmt.Errorf("%v", a), err))
	}
}

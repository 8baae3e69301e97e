// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"bytes"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hasplock/hasp/internal/faultproxy"
)

// backbone is how the servers of a group reach each other: each one announces a link to itself, if it is linked. It is
// for the test's goroutine.
type backbone struct {
	t      testing.TB
	linked bool
	links  map[*Server]*faultproxy.Proxy
	buses  map[*Server]*faultproxy.Proxy // to the buses of a cluster

	mu    sync.Mutex
	apart map[*Server]bool          // no server reaches its bus
	mute  map[string]bool           // it reaches no other's bus: by what a cluster calls it
	lag   map[*Server]chan struct{} // nothing reaches its replicas until it is closed
}

func newBackbone(t testing.TB, linked bool) *backbone {
	return &backbone{t: t, linked: linked, links: map[*Server]*faultproxy.Proxy{}, buses: map[*Server]*faultproxy.Proxy{},
		apart: map[*Server]bool{}, mute: map[string]bool{}, lag: map[*Server]chan struct{}{}}
}

// announce returns the arguments that have a server announce its link. bus is the port of its bus; 0: it is not one of a cluster.
func (b *backbone) announce(s *Server, bus int) []string {
	if !b.linked {
		return nil
	}
	at := strconv.Itoa(portOf(b.to(b.links, s, s.port, b.behind(s))))
	if bus == 0 {
		return []string{"--replica-announce-port", at}
	}
	return []string{"--cluster-announce-port", at, "--cluster-announce-bus-port", strconv.Itoa(b.busOf(s, bus))}
}

// busOf returns which port of a server's bus the others are told.
func (b *backbone) busOf(s *Server, bus int) int {
	if !b.linked {
		return bus
	}
	return portOf(b.to(b.buses, s, bus, b.severed(s)))
}

// to returns the address of the link to a port, which changes while the server looks for a free one.
func (b *backbone) to(all map[*Server]*faultproxy.Proxy, s *Server, port int, hook func(faultproxy.Chunk) bool) string {
	target := fmt.Sprintf("127.0.0.1:%d", port)
	l := all[s]
	if l == nil {
		l = faultproxy.New(b.t, target)
		l.Hook(hook)
		all[s] = l
	}
	l.Retarget(target)
	return l.Addr()
}

// severed reports whether a message on the bus of a server is lost. Each connection carries the messages of one sender; its name
// is in the header (cluster.h of Redis: clusterMsg).
func (b *backbone) severed(s *Server) func(faultproxy.Chunk) bool {
	const from, to = 40, 80
	senders := map[int]string{}
	return func(c faultproxy.Chunk) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		if c.Dir == faultproxy.Up && senders[c.Conn] == "" && len(c.Data) >= to && string(c.Data[:4]) == "RCmb" {
			senders[c.Conn] = string(c.Data[from:to])
		}
		return b.apart[s] || b.mute[senders[c.Conn]]
	}
}

// behind holds back what a master sends to its replicas while they lag, and drops it in the end.
func (b *backbone) behind(s *Server) func(faultproxy.Chunk) bool {
	replicas := map[int]bool{}
	return func(c faultproxy.Chunk) bool {
		b.mu.Lock()
		if c.Dir == faultproxy.Up && bytes.Contains(c.Data, []byte("PSYNC")) {
			replicas[c.Conn] = true
		}
		var over chan struct{}
		if c.Dir == faultproxy.Down && replicas[c.Conn] {
			over = b.lag[s]
		}
		b.mu.Unlock()
		if over != nil {
			<-over
		}
		return over != nil
	}
}

// Announced returns where the others, and clients, are told that a server is.
func (b *backbone) Announced(s *Server) string {
	if l := b.links[s]; l != nil {
		return l.Addr()
	}
	return s.Addr()
}

// Cut cuts a master off from all others, or ends that. Clients that do not use its link still reach it.
func (b *backbone) Cut(s *Server, cut bool) {
	b.t.Helper()
	if _, ok := b.buses[s]; ok {
		id := s.ID()
		b.mu.Lock()
		b.apart[s], b.mute[id] = cut, cut
		if !cut {
			for _, bus := range b.buses {
				bus.Reset() // TCP leaves nothing out
			}
		}
		b.mu.Unlock()
	}
	if cut {
		b.links[s].Swallow(true, true)
	} else {
		b.links[s].Reconnect()
	}
}

// AwaitReplicas returns once all replicas of a master have what it has now.
func (s *Server) AwaitReplicas() {
	s.t.Helper()
	offsets := func(behind string) (all []int) {
		for _, m := range regexp.MustCompile(behind+`(\d+)`).FindAllStringSubmatch(s.info(), -1) {
			n, _ := strconv.Atoi(m[1]) // digits are a number
			all = append(all, n)
		}
		return all
	}
	has := offsets("master_repl_offset:")[0]
	until(s.t, "the replicas have what the master has", func() bool {
		all := offsets(",offset=")
		return len(all) > 0 && slices.Min(all) >= has
	})
}

// Lag has the replicas of a master receive nothing from it, which neither they nor a Sentinel notice soon, or ends that.
func (b *backbone) Lag(s *Server, lag bool) {
	if lag {
		b.t.Cleanup(func() { b.Lag(s, false) }) // or its link would not end
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if over := b.lag[s]; over != nil {
		b.links[s].Reset() // what was held back is lost, and what comes behind it, too
		close(over)
	}
	if delete(b.lag, s); lag {
		b.lag[s] = make(chan struct{})
	}
}

func portOf(addr string) int {
	_, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(text)
	return port
}

// replicates reports whether the server is a replica that has what the one at a port has.
func (s *Server) replicates(master int) bool {
	text := s.says("INFO replication")
	return strings.Contains(text, "role:slave") && strings.Contains(text, "master_link_status:up") && strings.Contains(text, fmt.Sprintf("master_port:%d\r", master))
}

// Settle waits until the Sentinels agree about the master, and all others are its replicas.
func (c *RedisSentinel) Settle() {
	c.t.Helper()
	until(c.t, "the Sentinels agree, and all replicas have a master", func() bool {
		for _, s := range slices.Concat(c.Redises(), c.Sentinels) {
			if !s.answers() {
				return false
			}
		}
		master := c.Current()
		if slices.ContainsFunc(c.Sentinels, func(s *Server) bool { return c.named(s) != master }) {
			return false
		}
		text := master.says("INFO replication")
		for _, s := range c.Redises() {
			if s != master && !(s.replicates(portOf(c.Announced(master))) && strings.Contains(text, fmt.Sprintf("port=%d,state=online", portOf(c.Announced(s))))) {
				return false
			}
		}
		return strings.Contains(text, "role:master")
	})
}

// Failover has a Sentinel replace the master, as an operator does, and returns once all is settled.
func (c *RedisSentinel) Failover() {
	c.t.Helper()
	old := c.Current()
	c.Sentinels[0].ask("tcp", c.Sentinels[0].Addr(), "+OK", "SENTINEL", "FAILOVER", MasterName)
	until(c.t, "there is another master", func() bool { return c.Current() != old })
	c.Settle()
}

// Settle waits until all servers agree on the masters, their slots and the replicas, and none is failing.
func (c *RedisCluster) Settle() {
	c.t.Helper()
	until(c.t, "all servers agree, and all replicas have a master", func() bool {
		var first string
		for i, s := range c.All() {
			if !s.answers() || !strings.Contains(s.says("CLUSTER INFO"), "cluster_state:ok") {
				return false
			}
			is := c.view(s)
			if i == 0 {
				first = is
			}
			if text := s.says("INFO replication"); is == "" || is != first || strings.Contains(text, "role:slave") && !strings.Contains(text, "master_link_status:up") {
				return false
			}
		}
		return true
	})
}

// view is what a server believes of all; empty if one is failing, or has no replica.
func (c *RedisCluster) view(s *Server) string {
	var all []string
	slaves := 0
	for line := range strings.Lines(s.says("CLUSTER NODES")) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		flags := strings.ReplaceAll(f[2], "myself,", "")
		switch flags {
		case "slave":
			slaves++
		case "master":
		default:
			return ""
		}
		all = append(all, fmt.Sprint(f[0], flags, f[3], f[8:]))
	}
	if slaves != len(c.Replicas) {
		return ""
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Slot returns the hash slot of a key.
func (c *RedisCluster) Slot(key string) int {
	c.t.Helper()
	answer, _, _ := strings.Cut(c.Masters[0].order("CLUSTER KEYSLOT "+key, ":"), "\r")
	n, err := strconv.Atoi(answer[1:])
	must(c.t, err)
	return n
}

// ReplicaOf returns a replica of a master that has what the master has; nil if there is none.
func (c *RedisCluster) ReplicaOf(master *Server) *Server {
	c.t.Helper()
	for _, s := range c.All() {
		if s.answers() && s.replicates(portOf(c.Announced(master))) {
			return s
		}
	}
	return nil
}

// Failover has the replica of a master replace it, as an operator does, and returns once all is settled.
func (c *RedisCluster) Failover(master *Server) {
	c.t.Helper()
	var next *Server
	until(c.t, "the master has a replica", func() bool { next = c.ReplicaOf(master); return next != nil })
	next.order("CLUSTER FAILOVER", "+OK")
	until(c.t, "the replica is a master", func() bool { return strings.Contains(next.says("INFO replication"), "role:master") })
	c.Settle()
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisCluster is a Redis Cluster on loopback ports. Masters[i] has the i-th part of the hash slots, and
// Replicas[i] follows it, until a failover changes that. Each may be killed, stopped and started again by itself.
// Its methods are for the test's goroutine.
type RedisCluster struct {
	Masters, Replicas []*Server

	*backbone
	t testing.TB
}

// RedisGroup says how servers that belong together are started.
type RedisGroup struct {
	Timeout time.Duration // a master that does not answer for so long is replaced
	Linked  bool          // they reach each other over links, for Cut and Lag, which clients have to be dialed around: see Announced
	Args    []string      // further arguments of each Redis
}

// hashSlots is how many a cluster has.
const hashSlots = 16384

// NewRedisCluster starts a cluster of n masters with a replica each, and returns once every server knows of all slots.
func NewRedisCluster(t testing.TB, n int, o RedisGroup) *RedisCluster {
	t.Helper()
	Variant(t, "a Redis Cluster")
	c := &RedisCluster{backbone: newBackbone(t, o.Linked), t: t}
	for i := range 2 * n {
		bus := make(map[int]int) // by port: the other one is taken as well, now and then
		s := redisWith(t, nil, nil, func(s *Server) []string {
			for bus[s.port] == 0 || bus[s.port] == s.port {
				bus[s.port] = freePorts(t, 1)[0]
			}
			return append(append([]string{
				"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus[s.port]),
				"--cluster-node-timeout", strconv.FormatInt(o.Timeout.Milliseconds(), 10),
				"--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
			}, c.announce(s, bus[s.port])...), o.Args...)
		})
		if i < n {
			s.order(fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*hashSlots/n, (i+1)*hashSlots/n-1), "+OK")
			s.order(fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1), "+OK") // no two of them may have the same
			c.Masters = append(c.Masters, s)
		} else {
			c.Replicas = append(c.Replicas, s)
		}
		c.Masters[0].order(fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d %d", portOf(c.Announced(s)), c.busOf(s, bus[s.port])), "+OK")
	}
	until(t, "they know each other", func() bool {
		for _, s := range c.All() {
			if !strings.Contains(s.order("CLUSTER INFO", "$"), fmt.Sprintf("cluster_known_nodes:%d\r", 2*n)) {
				return false
			}
		}
		return true
	})
	for i, s := range c.Replicas {
		s.order("CLUSTER REPLICATE "+c.Masters[i].ID(), "+OK")
	}
	until(t, "it is up, with its replicas", func() bool {
		for i, s := range c.Replicas {
			if !strings.Contains(s.info(), "master_link_status:up") || c.Master(i*hashSlots/n) != c.Masters[i] {
				return false
			}
		}
		for _, s := range c.All() {
			text := s.order("CLUSTER INFO", "$") + s.order("CLUSTER NODES", "$")
			if !strings.Contains(text, "cluster_state:ok") || strings.Count(text, "slave") != n {
				return false
			}
		}
		return true
	})
	return c
}

// All are the masters and then the replicas.
func (c *RedisCluster) All() []*Server {
	return append(append([]*Server(nil), c.Masters...), c.Replicas...)
}

// Addrs are the addresses of all.
func (c *RedisCluster) Addrs() []string { return addrs(c.All()) }

func addrs(all []*Server) (addrs []string) {
	for _, s := range all {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// ID is what a cluster calls the server.
func (s *Server) ID() string {
	s.t.Helper()
	_, id, _ := strings.Cut(s.order("CLUSTER MYID", "$"), "\r\n")
	return id[:40]
}

// Master returns the running server that takes itself for the master of a hash slot; nil if none does.
func (c *RedisCluster) Master(slot int) *Server {
	c.t.Helper()
	for _, s := range c.All() {
		if !s.answers() {
			continue
		}
		for line := range strings.Lines(s.order("CLUSTER NODES", "$")) {
			if f := strings.Fields(line); len(f) > 8 && strings.Contains(f[2], "myself") && strings.Contains(f[2], "master") && owns(f[8:], slot) {
				return s
			}
		}
	}
	return nil
}

// owns reports whether a slot is among such as 0-5460, 7.
func owns(ranges []string, slot int) bool {
	for _, r := range ranges {
		from, to, several := strings.Cut(r, "-")
		if !several {
			to = from
		}
		a, errA := strconv.Atoi(from) // a slot on its way is in brackets
		b, errB := strconv.Atoi(to)
		if errA == nil && errB == nil && a <= slot && slot <= b {
			return true
		}
	}
	return false
}

// answers reports whether the server runs and answers.
func (s *Server) answers() bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	return pingRedis(ctx, s) == nil
}

// Move moves a hash slot with all its keys to another master, as redis-cli --cluster reshard does it. between is called while the slot
// is on its way: 0 after the target imports it, 1 after the source lets it go, 2 after some of its keys were moved, 3 after all were.
func (c *RedisCluster) Move(slot int, from, to *Server, between func(step int)) {
	c.t.Helper()
	to.order(fmt.Sprintf("CLUSTER SETSLOT %d IMPORTING %s", slot, from.ID()), "+OK")
	between(0)
	from.order(fmt.Sprintf("CLUSTER SETSLOT %d MIGRATING %s", slot, to.ID()), "+OK")
	between(1)
	for first := true; ; first = false {
		keys := bulks(from.order(fmt.Sprintf("CLUSTER GETKEYSINSLOT %d 25", slot), "*"))
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			from.ask("unix", from.Socket(), "+", "MIGRATE", "127.0.0.1", strconv.Itoa(to.port), key, "0", "5000")
		}
		if first {
			between(2)
		}
	}
	between(3)
	for _, s := range append([]*Server{to, from}, c.All()...) {
		if !strings.Contains(s.info(), "role:slave") {
			s.order(fmt.Sprintf("CLUSTER SETSLOT %d NODE %s", slot, to.ID()), "+OK")
		}
	}
}

// bulks reads an array of bulk strings.
func bulks(answer string) (all []string) {
	_, rest, _ := strings.Cut(answer, "\r\n")
	for strings.HasPrefix(rest, "$") {
		head, after, _ := strings.Cut(rest[1:], "\r\n")
		n, err := strconv.Atoi(head)
		if err != nil || n < 0 || n+2 > len(after) {
			break
		}
		all = append(all, after[:n])
		rest = after[n+2:]
	}
	return all
}

// groupLimit bounds what servers have to agree about: a Sentinel that stood still for two seconds believes nothing for half a minute.
const groupLimit = 2 * time.Minute

// until waits for what no event tells.
func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for limit := time.Now().Add(groupLimit); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("testserver: it was not so within %v: %s", groupLimit, what)
		}
	}
}

// RedisSentinel is a Redis master with replicas, and Sentinels that watch them.
type RedisSentinel struct {
	Master    *Server // at first
	Replicas  []*Server
	Sentinels []*Server

	*backbone
	t testing.TB
}

// MasterName is how Sentinels call the master.
const MasterName = "mymaster"

// NewRedisSentinel starts a master with two replicas and three Sentinels, and returns once the Sentinels know of each other and of the
// replicas.
func NewRedisSentinel(t testing.TB, o RedisGroup) *RedisSentinel {
	t.Helper()
	Variant(t, "Sentinels")
	c := &RedisSentinel{backbone: newBackbone(t, o.Linked), t: t}
	start := func() *Server {
		return redisWith(t, nil, nil, func(s *Server) []string {
			return append(append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, c.announce(s, 0)...), o.Args...)
		})
	}
	c.Master = start()
	for range 2 {
		s := start()
		s.follow(c.Master, portOf(c.Announced(c.Master)), portOf(c.Announced(s)))
		c.Replicas = append(c.Replicas, s)
	}
	path := require(t, "redis", binaries)
	for range 3 {
		c.Sentinels = append(c.Sentinels, launch(t, spec{
			path:  path,
			args:  func(s *Server) []string { return []string{c.configure(s, o.Timeout), "--sentinel"} },
			ready: pingRedis,
			taken: "Address already in use",
		}, freePort))
	}
	until(t, "the Sentinels know all", func() bool {
		for _, s := range c.Sentinels {
			text := s.ask("tcp", s.Addr(), "*", "SENTINEL", "MASTER", MasterName)
			if !strings.Contains(text, "num-slaves\r\n$1\r\n2\r\n") || !strings.Contains(text, "num-other-sentinels\r\n$1\r\n2\r\n") {
				return false
			}
		}
		return true
	})
	return c
}

// configure writes the file that a Sentinel begins with, and changes itself, and returns its name.
func (c *RedisSentinel) configure(s *Server, timeout time.Duration) string {
	name := filepath.Join(s.dir, fmt.Sprintf("sentinel-%d.conf", s.port))
	if _, err := os.Stat(name); err == nil {
		return name // it goes on with what it knows
	}
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nunixsocket sock\ndir %s\nsentinel monitor %s 127.0.0.1 %d 2\nsentinel down-after-milliseconds %[3]s %[5]d\n"+
		"sentinel failover-timeout %[3]s 10000\nsentinel parallel-syncs %[3]s 2\n", s.port, s.dir, MasterName, portOf(c.Announced(c.Master)), timeout.Milliseconds())
	must(c.t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// Addrs are the addresses of the Sentinels.
func (c *RedisSentinel) Addrs() []string { return addrs(c.Sentinels) }

// Redises are those that are no Sentinels.
func (c *RedisSentinel) Redises() []*Server { return append([]*Server{c.Master}, c.Replicas...) }

// Current returns the server that the first Sentinel takes for the master.
func (c *RedisSentinel) Current() *Server { return c.named(c.Sentinels[0]) }

// named returns the server that a Sentinel takes for the master.
func (c *RedisSentinel) named(by *Server) *Server {
	c.t.Helper()
	answer := bulks(by.ask("tcp", by.Addr(), "*", "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName))
	for _, s := range c.Redises() {
		if len(answer) == 2 && answer[1] == strconv.Itoa(portOf(c.Announced(s))) {
			return s
		}
	}
	c.t.Fatalf("testserver: a Sentinel names %q", answer)
	return nil
}

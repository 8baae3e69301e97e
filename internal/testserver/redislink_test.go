// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"slices"
	"strings"
	"testing"
)

// A master of a cluster that is cut off from all others is replaced, though it runs, and follows the new one afterwards.
func TestCutMasterOfACluster(t *testing.T) {
	t.Parallel()
	c := NewRedisCluster(t, 3, RedisGroup{Timeout: nodeTimeout, Linked: true})
	master, replica := c.Masters[0], c.Replicas[0]
	c.Cut(master, true)
	until(t, "its replica replaces it", func() bool { return strings.Contains(replica.says("INFO replication"), "role:master") })
	if text := master.says("INFO replication"); !strings.Contains(text, "role:master") {
		t.Errorf("it heard of that: %s", text)
	}
	c.Cut(master, false)
	c.Settle()
	if c.ReplicaOf(replica) != master {
		t.Error("it does not follow the new one")
	}
}

// A master that is cut off from the Sentinels is replaced, too.
func TestCutMasterOfSentinels(t *testing.T) {
	t.Parallel()
	c := NewRedisSentinel(t, RedisGroup{Timeout: nodeTimeout, Linked: true})
	c.Cut(c.Master, true)
	until(t, "they name another", func() bool { return c.Current() != c.Master })
	if text := c.Master.says("INFO replication"); !strings.Contains(text, "role:master") {
		t.Errorf("it heard of that: %s", text)
	}
	c.Cut(c.Master, false)
	c.Settle()
}

// A replica that lags lacks what its master has, without being away, and has it afterwards.
func TestLag(t *testing.T) {
	t.Parallel()
	c := NewRedisSentinel(t, RedisGroup{Timeout: nodeTimeout, Linked: true})
	set := func(value string) { c.Master.ask("unix", c.Master.Socket(), "+OK", "SET", "k", value) }
	have := func(value string) bool {
		return !slices.ContainsFunc(c.Replicas, func(s *Server) bool { return !strings.Contains(s.says("GET k"), value) })
	}
	set("first")
	c.Master.AwaitReplicas()
	c.Lag(c.Master, true)
	set("second")
	for range 10 { // rounds of asking, in which it would arrive
		if !have("first") {
			t.Fatal("it has arrived")
		}
	}
	c.Lag(c.Master, false)
	c.Settle()
	until(t, "they have it", func() bool { return have("second") })
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const nodeTimeout = 3 * time.Second

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := NewRedisCluster(t, 3, RedisGroup{Timeout: nodeTimeout})
	const slot = 12182 // of "foo"
	if c.Master(slot) != c.Masters[2] {
		t.Fatal("the third master has not the last slots")
	}
	c.Masters[2].ask("unix", c.Masters[2].Socket(), "+OK", "SET", "foo", "bar")
	var steps []int
	c.Move(slot, c.Masters[2], c.Masters[0], func(step int) { steps = append(steps, step) })
	if c.Master(slot) != c.Masters[0] || !slices.Equal(steps, []int{0, 1, 2, 3}) {
		t.Fatalf("the slot was not moved, in steps %v", steps)
	}
	c.Masters[0].ask("unix", c.Masters[0].Socket(), "$3\r\nbar", "GET", "foo")
	until(t, "its replica has the key", func() bool { return hasOneKey(c.Replicas[0]) })
	c.Masters[0].Kill()
	until(t, "its replica replaces it", func() bool { return c.Master(slot) == c.Replicas[0] })
	c.Replicas[0].ask("unix", c.Replicas[0].Socket(), "$3\r\nbar", "GET", "foo")
}

func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	c := NewRedisSentinel(t, RedisGroup{Timeout: nodeTimeout})
	if c.Current() != c.Master {
		t.Fatal("they name another")
	}
	c.Master.ask("unix", c.Master.Socket(), "+OK", "SET", "foo", "bar")
	until(t, "both replicas have the key", func() bool { return !slices.ContainsFunc(c.Replicas, func(r *Server) bool { return !hasOneKey(r) }) })
	c.Master.Kill()
	until(t, "a replica replaces it", func() bool { return slices.Contains(c.Replicas, c.Current()) })
	c.Current().ask("unix", c.Current().Socket(), "$3\r\nbar", "GET", "foo")
}

// hasOneKey asks a server itself: WAIT is about the writes of its own connection only.
func hasOneKey(s *Server) bool { return strings.HasPrefix(s.says("DBSIZE"), ":1\r\n") }

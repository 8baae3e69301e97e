// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
)

// members is how many members a cluster has.
const members = 3

// EtcdCluster is an etcd of three members on loopback ports. The members talk to each other through
// links of the test, so that one can be cut off. Each may be killed, stopped and started
// again by itself. Its methods are for the test's goroutine.
type EtcdCluster struct {
	Members []*Server

	t     testing.TB
	links [members][]*faultproxy.Proxy // of each member, to and from the others
}

// peer is the name of a member's socket for the others. It stands for its own socket in its own
// directory, and for a link to that in the other members'.
func peer(i int) string { return fmt.Sprintf("peer%d:1", i) }

// NewEtcdCluster starts a cluster of the version 3.6. args are further arguments of each member.
func NewEtcdCluster(t testing.TB, args ...string) *EtcdCluster {
	t.Helper()
	Variant(t, "several etcds")
	path := etcd36(t)
	c := &EtcdCluster{t: t}
	var all []string
	for i := range members {
		all = append(all, fmt.Sprintf("m%d=unix://%s", i, peer(i)))
	}
	for i := range members {
		sp := spec{path: path, ready: healthyEtcd, taken: "address already in use", stale: []string{etcdSocket, peer(i)}}
		sp.args = func(s *Server) []string {
			url := "http://" + s.Addr()
			return append([]string{
				"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(s.dir, "data"),
				"--listen-client-urls", url + ",unix://" + etcdSocket, "--advertise-client-urls", url,
				"--listen-peer-urls", "unix://" + peer(i), "--initial-advertise-peer-urls", "unix://" + peer(i),
				"--initial-cluster", strings.Join(all, ","),
			}, args...)
		}
		s := newServer(t, sp)
		s.port = freePorts(t, 1)[0]
		c.Members = append(c.Members, s)
	}
	c.connect()
	if !startAll(t, c.Members) {
		t.Fatalf("testserver: a port of the cluster was taken")
	}
	return c
}

// connect makes a link from each member to each other.
func (c *EtcdCluster) connect() {
	for i, from := range c.Members {
		for j, to := range c.Members {
			if i == j {
				continue
			}
			at, err := net.Listen("unix", filepath.Join(from.dir, peer(j)))
			must(c.t, err)
			l := faultproxy.On(c.t, at, filepath.Join(to.dir, peer(j)))
			c.links[i], c.links[j] = append(c.links[i], l), append(c.links[j], l)
		}
	}
}

// Addrs are the members' addresses.
func (c *EtcdCluster) Addrs() []string { return addrs(c.Members) }

// Leader waits until a majority of the members names a leader, other than those of but, and returns
// its index.
func (c *EtcdCluster) Leader(but ...int) int {
	c.t.Helper()
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		votes := make(map[string]int)
		index := make(map[string]int)
		for i, s := range c.Members {
			if member, leader, err := status(s); err == nil {
				index[member] = i
				votes[leader]++
			}
		}
		for leader, n := range votes {
			if i, ok := index[leader]; ok && n > members/2 && !slices.Contains(but, i) {
				return i
			}
		}
	}
	c.t.Fatalf("testserver: no leader within %v", startLimit)
	return 0
}

// status returns the id of a member, and that of its leader.
func status(s *Server) (member, leader string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	answer, err := get(ctx, "http://"+s.Addr()+"/v3/maintenance/status", "{}", "")
	if err != nil {
		return "", "", err
	}
	var said struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err = json.Unmarshal(answer, &said)
	return said.Header.Member, said.Leader, err
}

// Cut cuts a member off from the others: clients still reach it.
func (c *EtcdCluster) Cut(i int) {
	for _, l := range c.links[i] {
		l.Refuse()
		l.Reset()
	}
}

// Heal ends a Cut.
func (c *EtcdCluster) Heal(i int) {
	for _, l := range c.links[i] {
		l.Clear()
	}
}

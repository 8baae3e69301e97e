// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// members is how many members a cluster has.
const members = 3

// EtcdCluster is an etcd of three members on loopback ports. The members talk to each other through
// links of the test, so that one can be cut off. Each may be killed, stopped and started
// again by itself. Its methods are for the test's goroutine.
type EtcdCluster struct {
	Members []*Server

	t     testing.TB
	links []*link
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
		dir, err := os.MkdirTemp("", "hasp-")
		if err != nil {
			t.Fatalf("testserver: %v", err)
		}
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
		s := &Server{t: t, spec: sp, dir: dir}
		t.Cleanup(s.cleanup)
		if s.port, err = freePort(); err != nil {
			t.Fatalf("testserver: %v", err)
		}
		c.Members = append(c.Members, s)
	}
	c.connect()
	c.start()
	return c
}

// connect makes a link from each member to each other.
func (c *EtcdCluster) connect() {
	for i, from := range c.Members {
		for j, to := range c.Members {
			if i == j {
				continue
			}
			l, err := newLink(filepath.Join(from.dir, peer(j)), filepath.Join(to.dir, peer(j)))
			if err != nil {
				c.t.Fatalf("testserver: %v", err)
			}
			l.from, l.to = i, j
			c.links = append(c.links, l)
			c.t.Cleanup(l.close)
		}
	}
}

// start starts all at once: none answers before it knows a majority.
func (c *EtcdCluster) start() {
	c.t.Helper()
	errs := make([]error, members)
	var wg sync.WaitGroup
	for i, s := range c.Members {
		wg.Go(func() { errs[i] = s.start() })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			c.t.Fatalf("testserver: start member %d: %v", i, err)
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
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr()+"/v3/maintenance/status", strings.NewReader("{}"))
	if err != nil {
		return "", "", err
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	var said struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
		return "", "", err
	}
	return said.Header.Member, said.Leader, nil
}

// Cut cuts a member off from the others: clients still reach it.
func (c *EtcdCluster) Cut(i int) { c.set(i, true) }

// Heal ends a Cut.
func (c *EtcdCluster) Heal(i int) { c.set(i, false) }

func (c *EtcdCluster) set(i int, cut bool) {
	for _, l := range c.links {
		if l.from == i || l.to == i {
			l.set(cut)
		}
	}
}

// link forwards the connections to one unix socket to another one.
type link struct {
	from, to int
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newLink(path, target string) (*link, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, target: target, conns: make(map[net.Conn]bool)}
	l.wg.Go(l.accept)
	return l, nil
}

func (l *link) accept() {
	for {
		a, err := l.listener.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("unix", l.target)
		if err != nil || !l.keep(a, b) {
			_ = a.Close()
			if err == nil {
				_ = b.Close()
			}
			continue
		}
		l.wg.Go(func() { l.forward(a, b) })
		l.wg.Go(func() { l.forward(b, a) })
	}
}

// keep is false while the link is cut.
func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		l.conns[c] = !l.cut
	}
	return !l.cut
}

func (l *link) forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, from)
}

func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for c := range l.conns {
		if cut {
			_ = c.Close()
		}
	}
}

func (l *link) close() {
	_ = l.listener.Close()
	l.set(true)
	l.wg.Wait()
}

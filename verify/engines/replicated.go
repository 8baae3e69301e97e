// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// replaced is for how long a master is silent before another replaces it.
	replaced = time.Second
	// masters is how many a cluster has, each with a replica.
	masters = 3
	// redisKey is a lock's key in Redis; its master is the leader of a cluster.
	redisKey = "lock:k0"
)

// servers are those of a Redis with replicas.
type servers interface {
	Announced(s *testserver.Server) string
	Cut(s *testserver.Server, cut bool)
	Lag(s *testserver.Server, lag bool)
	Settle()
}

// group is a Redis with replicas, and what differs between Sentinels and a cluster.
type group struct {
	servers
	leads    func() *testserver.Server
	follows  func(leader *testserver.Server) *testserver.Server // there is one, since all is settled
	failover func(leader *testserver.Server)
	cluster  *testserver.RedisCluster // or nil
}

// startGroup starts servers that keep what they were told when they are killed, and reach each other over links.
func startGroup(s *Store, _ []string) {
	o := testserver.RedisGroup{Timeout: replaced, Linked: true, Args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}}
	if s.Kind.IsCluster() {
		o.Args = append(o.Args, "--cluster-replica-validity-factor", "0") // a replica may replace its master however long it lagged
		c := testserver.NewRedisCluster(s.t, masters, o)
		s.Servers = c.All()
		s.redis = &group{c, func() *testserver.Server { return c.Master(c.Slot(redisKey)) }, c.ReplicaOf, c.Failover, c}
	} else {
		if s.Kind == SentinelRecord {
			o.Args = append(o.Args, "--min-replicas-to-write", "2", "--min-replicas-max-lag", "5") // as docs/stores/redis.md says
		}
		c := testserver.NewRedisSentinel(s.t, o)
		s.Servers = slices.Concat(c.Redises(), c.Sentinels)
		other := func(leader *testserver.Server) *testserver.Server {
			all := c.Redises()
			return all[slices.IndexFunc(all, func(s *testserver.Server) bool { return s != leader })]
		}
		s.redis = &group{c, c.Current, other, func(*testserver.Server) { c.Failover() }, nil}
	}
	s.leader = func() int {
		s.redis.Settle()
		return slices.Index(s.Servers, s.redis.leads())
	}
	s.cut = func(member int, cut bool) { s.redis.Cut(s.Servers[member], cut) }
}

// Settle waits until servers agree again which of them leads.
func (s *Store) Settle() {
	if s.redis != nil {
		s.redis.Settle()
	}
}

// Lag has the replicas of a master receive nothing, or ends that.
func (s *Store) Lag(master int, lag bool) { s.redis.Lag(s.Servers[master], lag) }

// Failover has a replica replace the leader, as an operator does.
func (s *Store) Failover() { s.redis.failover(s.Servers[s.Leader()]) }

// Reshard moves the hash slot of a key to another master of a cluster. between is called at each step.
func (s *Store) Reshard(between func(step int)) {
	c := s.redis.cluster
	slot := c.Slot(redisKey)
	from := c.Master(slot)
	for _, to := range c.All() {
		if to != from && c.ReplicaOf(to) != nil {
			c.Move(slot, from, to, between)
			return
		}
	}
	s.t.Fatalf("%s: no other master has a replica", s.Kind)
}

func (k Kind) openReplicated(addrs []string, _ time.Duration) (*Conn, error) {
	at := map[string]string{}
	var told []string
	for _, a := range addrs {
		announced, link, _ := strings.Cut(a, "=")
		at[announced] = link
		told = append(told, announced)
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		link, ok := at[addr]
		if !ok {
			return nil, fmt.Errorf("no server is at %q", addr)
		}
		d := net.Dialer{Timeout: dialLimit}
		return d.DialContext(ctx, network, link)
	}
	o := &redisdriver.Options{Replicas: map[Kind]int{SentinelReplicas: 2, ClusterReplicas: 1}[k]}
	if k.IsCluster() {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: told, Dialer: dial, ContextTimeoutEnabled: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		return &Conn{redisdriver.New(rdb, o), rdb.Close}, nil
	}
	if !slices.Contains(Replicated, k) {
		return nil, fmt.Errorf("no store is called %q", k)
	}
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: testserver.MasterName, SentinelAddrs: told[len(told)-3:], Dialer: dial, ContextTimeoutEnabled: true})
	if k == SentinelRecord {
		return &Conn{redisdriver.NewNode(rdb, RecordTTL, nil), rdb.Close}, nil
	}
	return &Conn{redisdriver.New(rdb, o), rdb.Close}, nil
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	hasprueidis "github.com/hasplock/hasp/redisdriver/rueidis"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
)

// Store is the servers of a store. Its methods are for one goroutine, and fail the test if they cannot do what they say.
type Store struct {
	Kind    Kind
	Servers []*testserver.Server
	file    string // of SQLite
	redis   *group // with replicas
	leader  func() int
	cut     func(member int, cut bool)
	t       testing.TB
}

// quick is how every etcd here is started.
var quick = []string{"--heartbeat-interval=50", fmt.Sprintf("--election-timeout=%d", electionTimeout.Milliseconds())}

// Start starts the servers, and makes what they need. A store of one server that does not run Go has env, such as a
// testserver.Clock's, in its environment.
func Start(t testing.TB, k Kind, env ...string) *Store {
	t.Helper()
	s := &Store{Kind: k, t: t, leader: func() int { return 0 }}
	k.engine().start(s, env)
	switch k {
	case Postgres, MariaDB:
		s.must(initialize(t.Context(), k, s.Servers[0].Addr()))
	case SentinelRecord, Redlock:
		c, err := Open(k, s.Addrs())
		s.must(err)
		s.must(c.Admit(t.Context()))
	}
	return s
}

func one(server func(testing.TB, []string, ...string) *testserver.Server) func(*Store, []string) {
	return func(s *Store, env []string) { s.Servers = []*testserver.Server{server(s.t, env)} }
}

func startEtcds(s *Store, _ []string) {
	c := testserver.NewEtcdCluster(s.t, quick...)
	s.Servers, s.leader = c.Members, func() int { return c.Leader() }
	s.cut = func(member int, cut bool) {
		if cut {
			c.Cut(member)
		} else {
			c.Heal(member)
		}
	}
}

func startZooKeepers(s *Store, _ []string) {
	s.Servers = testserver.ZooKeepers(s.t, 3)
	s.leader = func() int { return testserver.ZooKeeperLeader(s.t, s.Servers) }
}

func startRedises(s *Store, _ []string) {
	for range s.Kind.Servers() {
		s.Servers = append(s.Servers, testserver.Redis(s.t))
	}
}

func startFile(s *Store, _ []string) {
	dir, err := os.MkdirTemp("", "hasp-file-")
	s.must(err)
	s.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.file = filepath.Join(dir, "locks.db")
}

func (s *Store) must(err error) {
	if err != nil {
		s.t.Helper()
		s.t.Fatalf("%s: %v", s.Kind, err)
	}
}

// Addrs returns where the servers are; of SQLite, the file.
func (s *Store) Addrs() []string {
	return s.through(func(i int) string { return s.Servers[i].Addr() })
}

// Through returns where a client finds the servers that is to use these links.
func (s *Store) Through(links []*faultproxy.Proxy) []string {
	return s.through(func(i int) string { return links[i].Addr() })
}

func (s *Store) through(addr func(i int) string) (all []string) {
	if s.file != "" {
		return []string{s.file}
	}
	for i, server := range s.Servers {
		at := addr(i)
		if s.redis != nil { // where a client is told that it is, and where the client finds it instead
			at = s.redis.Announced(server) + "=" + at
		}
		all = append(all, at)
	}
	return all
}

// Links returns a link to each server, for one client. They end with t, which may be a part of the test that started the store.
func (s *Store) Links(t testing.TB) (all []*faultproxy.Proxy) {
	t.Helper()
	for _, server := range s.Servers {
		all = append(all, faultproxy.New(t, server.Addr()))
	}
	return all
}

// Leader returns which server leads now, once a server does: of a single server, that; of a cluster, the master of the key k0.
func (s *Store) Leader() int { return s.leader() }

// Follower returns a server that follows the leader.
func (s *Store) Follower() int {
	if s.redis != nil {
		return slices.Index(s.Servers, s.redis.follows(s.Servers[s.Leader()]))
	}
	return (s.Leader() + 1) % len(s.Servers)
}

// Cut cuts a member off from the others, or ends that: clients still reach it.
func (s *Store) Cut(member int, cut bool) { s.cut(member, cut) }

// Revoke revokes all leases of an etcd.
func (s *Store) Revoke(ctx context.Context) error {
	client, err := connectEtcd(s.Addrs())
	if err != nil {
		return err
	}
	all, err := client.Leases(ctx)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	for _, l := range all.Leases {
		_, _ = client.Revoke(ctx, l.ID) // it may have ended
	}
	return client.Close()
}

// Terminate has a database end the connections of all clients, as an administrator does.
func (s *Store) Terminate(ctx context.Context) error {
	if s.Kind == Postgres {
		db, err := sql.Open("pgx", fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", s.Servers[0].Addr()))
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
		return errors.Join(err, db.Close())
	}
	db, err := openMySQL(s.Servers[0].Addr(), "")
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	var ids string
	err = db.QueryRowContext(ctx, "SELECT COALESCE(GROUP_CONCAT(id), '') FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND db = ?", database).Scan(&ids)
	for id := range strings.SplitSeq(ids, ",") {
		_, _ = db.ExecContext(ctx, "KILL "+id) // it may have ended
	}
	return errors.Join(err, db.Close())
}

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
		return (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, network, at[addr]) // "": no server is there
	}
	o := &redisdriver.Options{Replicas: k.Confirming()}
	switch k {
	case SentinelRueidis:
		return openRueidis(rueidis.ClientOption{InitAddress: told[len(told)-3:], Sentinel: rueidis.SentinelOption{MasterSet: testserver.MasterName}}, dial, o)
	case ClusterRueidis:
		return openRueidis(rueidis.ClientOption{InitAddress: told}, dial, o)
	}
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

// openRueidis waits for a store that cannot be reached, as rueidis connects at once.
func openRueidis(o rueidis.ClientOption, dial func(context.Context, string, string) (net.Conn, error), with *redisdriver.Options) (*Conn, error) {
	o.ConnWriteTimeout = 8 * time.Second // as package rueidis advises
	o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return dial(ctx, "tcp", addr)
	}
	for tries := 0; ; tries++ {
		c, err := rueidis.NewClient(o)
		if err == nil {
			return &Conn{hasprueidis.New(c, with), func() error { c.Close(); return nil }}, nil
		} else if tries == 100 {
			return nil, err
		}
		time.Sleep(replaced / 10)
	}
}

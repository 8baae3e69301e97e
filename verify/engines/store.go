// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
)

// Store is the servers of a store. Its methods are for one goroutine, and fail the test if they cannot
// do what they say.
type Store struct {
	Kind    Kind
	Servers []*testserver.Server
	etcd    *testserver.EtcdCluster // of three members
	file    string                  // of SQLite
	redis   *group                  // with replicas
	t       testing.TB
}

// quick is how every etcd here is started.
var quick = []string{"--heartbeat-interval=50", fmt.Sprintf("--election-timeout=%d", electionTimeout.Milliseconds())}

// Start starts the servers, and makes what they need. Those that are one server that does not run Go have env, such as a
// testserver.Clock's, in their environment.
func Start(t testing.TB, k Kind, env ...string) *Store {
	t.Helper()
	s := &Store{Kind: k, t: t}
	one := func(server *testserver.Server) { s.Servers = []*testserver.Server{server} }
	switch k {
	case Etcd:
		one(testserver.Etcd(t, quick...))
	case Etcd3:
		s.etcd = testserver.NewEtcdCluster(t, quick...)
		s.Servers = s.etcd.Members
	case ZooKeeper:
		one(testserver.ZooKeeperIn(t, env))
	case ZooKeeper3:
		s.Servers = testserver.ZooKeepers(t, 3)
	case Postgres:
		one(testserver.PostgresIn(t, env))
	case MariaDB:
		one(testserver.MariaDBIn(t, env))
	case Sentinel, SentinelRecord, SentinelReplicas, Cluster, ClusterReplicas:
		s.redis = startGroup(t, k)
		s.Servers = s.redis.all
	case Redis:
		one(testserver.RedisIn(t, env))
	case Redlock:
		for range k.Servers() {
			s.Servers = append(s.Servers, testserver.Redis(t))
		}
	case SQLite:
		dir, err := os.MkdirTemp("", "hasp-file-")
		s.must(err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		s.file = filepath.Join(dir, "locks.db")
	}
	switch k {
	case Postgres, MariaDB:
		s.must(initialize(t.Context(), k, s.Servers[0].Addr()))
	case SentinelRecord, Redlock:
		s.must(admit(t.Context(), k, s.Addrs()))
	}
	return s
}

func (s *Store) must(err error) {
	if err != nil {
		s.t.Helper()
		s.t.Fatalf("%s: %v", s.Kind, err)
	}
}

// Addrs returns where the servers are; of SQLite, the file.
func (s *Store) Addrs() (all []string) {
	if s.file != "" {
		return []string{s.file}
	}
	if s.redis != nil {
		return s.redis.through(func(i int) string { return s.Servers[i].Addr() })
	}
	for _, server := range s.Servers {
		all = append(all, server.Addr())
	}
	return all
}

// Links returns a link to each server, for one client. They end with t, which may be a part of the
// test that started the store.
func (s *Store) Links(t testing.TB) (all []*faultproxy.Proxy) {
	t.Helper()
	for _, server := range s.Servers {
		all = append(all, faultproxy.New(t, server.Addr()))
	}
	return all
}

// Through returns where a client finds the servers that is to use these links.
func (s *Store) Through(links []*faultproxy.Proxy) (addrs []string) {
	if s.file != "" {
		return s.Addrs()
	}
	if s.redis != nil {
		return s.redis.through(func(i int) string { return links[i].Addr() })
	}
	for _, l := range links {
		addrs = append(addrs, l.Addr())
	}
	return addrs
}

// Leader returns which server leads now, once one does; of one, that one; of a cluster, the master of the key k0.
func (s *Store) Leader() int {
	if s.redis != nil {
		return s.redis.leader()
	}
	switch s.Kind {
	case Etcd3:
		return s.etcd.Leader()
	case ZooKeeper3:
		return testserver.ZooKeeperLeader(s.t, s.Servers)
	}
	return 0
}

// Follower returns a server that follows the leader.
func (s *Store) Follower() int {
	if s.redis != nil {
		return s.redis.follower()
	}
	return (s.Leader() + 1) % len(s.Servers)
}

// CanCut reports whether a member can be cut off from the others.
func (s *Store) CanCut() bool { return s.etcd != nil }

// Cut cuts a member off from the others, or ends that: clients still reach it.
func (s *Store) Cut(member int, cut bool) {
	if s.redis != nil {
		s.redis.Cut(s.Servers[member], cut)
		return
	}
	if cut {
		s.etcd.Cut(member)
	} else {
		s.etcd.Heal(member)
	}
}

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
	ids, err := connections(ctx, db)
	for _, id := range ids {
		_, _ = db.ExecContext(ctx, fmt.Sprintf("KILL %d", id)) // it may have ended
	}
	return errors.Join(err, db.Close())
}

// connections lists those of others to a MariaDB.
func connections(ctx context.Context, db *sql.DB) (ids []int64, err error) {
	rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND db = ?", database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return slices.Clip(ids), rows.Err()
}

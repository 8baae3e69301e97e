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
	"strings"
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

// Links returns a link to each server, for one client. They end with t, which may be a part of the
// test that started the store.
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

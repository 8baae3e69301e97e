// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/testserver"
)

// Kind is a kind of store.
type Kind string

// The kinds of store.
const (
	Etcd       Kind = "etcd"
	Etcd3      Kind = "etcd, three members"
	ZooKeeper  Kind = "ZooKeeper"
	ZooKeeper3 Kind = "ZooKeeper, three servers"
	Postgres   Kind = "PostgreSQL"
	MariaDB    Kind = "MariaDB"
	SQLite     Kind = "SQLite"
	Redis      Kind = "Redis"
	Redlock    Kind = "Redlock" // over three Redis

	// Redis with replicas, as it is; with a node record, and min-replicas-to-write; and with all replicas confirming each lease.
	Sentinel         Kind = "Redis Sentinel"
	SentinelRecord   Kind = "Redis Sentinel, node record"
	SentinelReplicas Kind = "Redis Sentinel, replicas confirm"
	Cluster          Kind = "Redis Cluster"
	ClusterReplicas  Kind = "Redis Cluster, replicas confirm"
)

// Kinds are the kinds that are not of Redis.
var Kinds = []Kind{Etcd, Etcd3, ZooKeeper, ZooKeeper3, Postgres, MariaDB, SQLite}

// Replicated are the kinds of Redis with replicas.
var Replicated = []Kind{Sentinel, SentinelRecord, SentinelReplicas, Cluster, ClusterReplicas}

// IsCluster reports whether it is a Redis Cluster.
func (k Kind) IsCluster() bool { return k == Cluster || k == ClusterReplicas }

// RecordTTL is the largest TTL of a node record here.
const RecordTTL = 2 * time.Second

// Session is the time-out of the sessions of ZooKeeper here: a lease lasts for two thirds of it at
// most.
const Session = RecordTTL * 3 / 2

// Servers returns how many there are; 0: a file.
func (k Kind) Servers() int { return k.engine().servers }

// Lingers returns for how much longer than a TTL a key may be held by no client, as docs/stores says: the store keeps what no
// client renews, or is held back after a failover.
func (k Kind) Lingers() time.Duration { return k.engine().lingers }

// Tells reports whether the driver hears by itself that a lease is over.
func (k Kind) Tells() bool { return k.engine().tells }

// engine is what differs between kinds. start gives its servers env, such as a testserver.Clock's, where they take it.
type engine struct {
	servers int
	lingers time.Duration
	tells   bool
	start   func(s *Store, env []string)
	open    func(addrs []string, ttl time.Duration) (*Conn, error)
}

// etcdLingers: newcomers share leases of a second more, and etcd looks every half second.
const etcdLingers = 2 * time.Second

func (k Kind) engine() engine {
	switch k {
	case Etcd:
		return engine{1, etcdLingers, true, one(func(t testing.TB, _ []string, _ ...string) *testserver.Server { return testserver.Etcd(t, quick...) }), openEtcd}
	case Etcd3:
		return engine{3, etcdLingers, true, startEtcds, openEtcd}
	case ZooKeeper: // a session's time-out counts from the last ping, and a server rounds it up
		return engine{1, Session, true, one(testserver.ZooKeeperIn), openZooKeeper}
	case ZooKeeper3:
		return engine{3, Session, true, startZooKeepers, openZooKeeper}
	case Postgres:
		return engine{1, 0, false, one(testserver.PostgresIn), openPostgres}
	case MariaDB:
		return engine{1, 0, false, one(testserver.MariaDBIn), openMariaDB}
	case SQLite:
		return engine{0, 0, false, startFile, openSQLite}
	case Redis:
		return engine{1, 0, false, one(testserver.RedisIn), openRedis}
	case Redlock:
		return engine{3, 0, false, startRedises, openRedlock}
	}
	e := engine{6, 0, false, startGroup, k.openReplicated} // a master, two replicas, three Sentinels; or three of each
	if k == SentinelRecord {
		e.lingers = admission.Wait(RecordTTL)
	}
	return e
}

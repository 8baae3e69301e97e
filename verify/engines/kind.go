// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"time"

	"github.com/hasplock/hasp/internal/admission"
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

// Kinds are those that are not of Redis.
var Kinds = []Kind{Etcd, Etcd3, ZooKeeper, ZooKeeper3, Postgres, MariaDB, SQLite}

// Replicated are those of Redis with replicas.
var Replicated = []Kind{Sentinel, SentinelRecord, SentinelReplicas, Cluster, ClusterReplicas}

// IsSentinel reports whether it is a master that Sentinels watch.
func (k Kind) IsSentinel() bool { return k == Sentinel || k == SentinelRecord || k == SentinelReplicas }

// IsCluster reports whether it is a Redis Cluster.
func (k Kind) IsCluster() bool { return k == Cluster || k == ClusterReplicas }

// Servers returns how many there are; 0: a file.
func (k Kind) Servers() int {
	switch k {
	case Etcd3, ZooKeeper3, Redlock:
		return 3
	case SQLite:
		return 0
	case Sentinel, SentinelRecord, SentinelReplicas, Cluster, ClusterReplicas: // a master, two replicas, three Sentinels; or three of each
		return 6
	}
	return 1
}

// RecordTTL is the largest TTL of a node record here.
const RecordTTL = 2 * time.Second

// Session is the time-out of the sessions of ZooKeeper here: a lease lasts for two thirds of it at
// most.
const Session = RecordTTL * 3 / 2

// Lingers returns for how much longer than a TTL a key may be nobody's, as docs/engines.md says: the store keeps what nobody
// renews, or is held back after a failover.
func (k Kind) Lingers() time.Duration {
	switch k {
	case Etcd, Etcd3: // newcomers share leases of a second more, and etcd looks every half second
		return 2 * time.Second
	case ZooKeeper, ZooKeeper3: // the session's time-out, which counts from the last ping, and what a server rounds it up by
		return Session
	case SentinelRecord:
		return admission.Wait(RecordTTL)
	}
	return 0
}

// Tells reports whether the driver hears by itself that a lease is over.
func (k Kind) Tells() bool {
	return k == Etcd || k == Etcd3 || k == ZooKeeper || k == ZooKeeper3
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package redisdriver keeps hasp's locks in Redis 7, Valkey and compatibles,
// through the go-redis client that a program already has:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	locks, err := hasp.New(redisdriver.New(rdb, nil), nil)
//
// ContextTimeoutEnabled has the client heed the deadlines of contexts. Without it a request occupies its connection
// until ReadTimeout, though its callers have left, and a lone request cannot be sent by its own caller, which is faster.
//
// Where the password is rotated, give the client Options.CredentialsProviderContext, which go-redis asks at each connection.
//
// # Layout
//
// A lock is one string key, prefix + key, with the owner and a label as its
// value, set with NX and PX: the layout that redsync, redislock, redlock-py,
// node-redlock and redis-cli share. They and hasp exclude each other when they
// name the same Redis key; see [Options]. A string that is not of hasp's form
// is a foreign holder: shown and respected, and never changed. A key of
// another type is a [TypeError].
//
// A lock that is shared (driver.Shared) is one such string, too, which begins
// with SHAREDLEASESAREINHASPSHARE: other clients are refused until its last
// holder is gone. The holders stand beside it, in hasp.shares and
// hasp.held, and in hasp.room the slots of those that have a limit. If a
// person or an eviction policy deletes one of these, the holders are not known any
// more, and the lock stays held until it expires. PERSIST on a lock keeps it for all its
// holders until they release it, or, where they died, until an operator removes it:
// [Driver.ListLeftovers] finds such a lock.
//
// Everything else begins with "hasp.", lies in the lock key's hash slot and expires: the queue of waiters, the
// grants, owners that were released a moment ago, and the largest fence (one for the server, in a
// cluster one for each hash slot). The files in lua of this package say what is in
// them. Use a server through one kind of client, cluster or not: the two keep
// the largest fence in different keys. A node, see below, also has a record that
// does not expire, and remembers the last fence of each key for a while: a
// minute, or its largest TTL when that is longer, after the lease would have ended.
//
// # Waiting
//
// A release hands the key off to the next in the queue at once, with a hint by pub/sub,
// on one channel and one connection per Driver (in a cluster one for each hash slot
// with waiters, up to 32). The connection is opened by the first wait, or the first
// renewal of a lease, and stays until Close. It also carries the channel hasp.broken, on
// which a client that breaks a lease says so: else its holder learns it only by a renewal,
// TTL/3 later. A client that may publish there can end a lease early. Over a quorum only
// renewals tell of that. The first in the queue tells the holders that called hasp.Lease.Wanted; their
// inboxes stand behind the grant, and a client that may publish there can make them believe it.
// Waiters without hints poll: the first every 50 ms,
// none less often than every second. Behind a foreign holder, which sends no
// hint when it releases the key, only the first in the queue polls, every 100 ms. Foreign
// clients that poll may starve while waiters of hasp are in the queue.
//
// # Permissions
//
// With ACLs a user needs these, and no more, where lock:* stands for the prefix:
//
//	~lock:* ~hasp.* &hasp.* +evalsha +eval +publish +subscribe +ping +scan
//	+time +type +exists +get +mget +getrange +set +del +pttl +pexpire
//	+zadd +zrem +zscore +zrank +zrange +zcount +zcard +hset +hget +hmget +hdel
//	+info +select
//
// +info is for a node, see below, and +select for a database other than 0. In a cluster
// also +ssubscribe +spublish +cluster|slots +command +asking, and Options.Replicas
// needs +wait. Without the right to subscribe,
// waiters poll. Without the right to publish, a release frees the key and the first in the
// queue, which looks every 100 ms, takes it. +scan is for lists. The command "hasp doctor"
// says which right is missing. From Redis 7.2 on each new connection of go-redis is in ACL LOG, since
// it sends CLIENT SETINFO, unless its options have DisableIdentity.
//
// # Servers that are not trusted
//
// Replies are checked for their form, but the client has read them by then, and
// go-redis makes room for as many elements as a reply's first line announces
// ("*1000000000" takes gigabytes): there is no limit to set. Where the server, or the
// way to it, is not trusted, use TLS, and give redis.Options a Dialer with
// connections that look at these lines, as the command hasp does.
//
// # What Redis cannot promise
//
// A server that loses data (killed without persistence, flushed, replaced by a
// replica that lagged) loses its leases, and another owner may get the key:
// Traits.Survives is 0. Fences rise across that, as they count the server's
// microseconds, unless its clock, or that of a promoted replica, is behind
// what it was. Leases end by the server's wall clock: a step forward ends them
// early. An eviction policy other than noeviction may drop a lock.
//
// # Nodes
//
// With [NewNode] the server is a node ([voting.Node]), alone or one of
// several for a quorum, and survives StoreRestart and StoreLoss: the "delayed
// restarts" of "Distributed locks with Redis" (the Redlock algorithm). The key
// hasp.node says in which run of the server (its run_id, which INFO must have),
// and for leases of which length, it may grant. Each script that grants or prolongs compares that
// with the server that runs it. After a restart, empty or from a file, a flush,
// or when a replica was promoted, they differ: the server then refuses with
// NotVoting, hands nothing on and prolongs nothing, until a client that has held
// it back for long enough admits it.
//
// A promoted replica is held back, but a client that still reaches the former
// master goes on renewing there, unless that master stops: set
// min-replicas-to-write to the number of all replicas, and min-replicas-max-lag
// to 7 at most.
//
// What that does not see: a lock, or this record, that a person or an eviction
// policy deletes or writes; SWAPDB between two databases that both are nodes;
// a machine that is set back to a snapshot with its memory; and other clients of
// the same keys, hasp's that are no nodes among them, which ask for no record. The
// clock of a node may be 3 s wrong when it is admitted; a step forward still
// ends leases early.
package redisdriver

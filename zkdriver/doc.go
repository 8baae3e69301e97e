// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package zkdriver keeps locks in ZooKeeper (3.5.3 or later), in the layout of Curator's recipes: programs of Java and Go
// take turns on the same nodes.
//
//	conn := zkdriver.Connect([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, nil)
//	defer conn.Close()
//	client, err := hasp.New(zkdriver.New(conn, &zkdriver.Options{Root: "/locks"}), nil)
//
// # Layout
//
// A key has a directory below the root, named like the key: letters, digits and "-_:@=+,~." are themselves, any other byte is
// %XX, and so is a dot at the beginning. It is a container: the servers delete it within about a minute of its last child. What is in it
// depends on [Options].Layout, which every program that uses the key must agree about, since Curator's recipes do not see each
// other. Where a node shows that another program uses another one, a Try fails with [LayoutError].
//
//	ReadWrite  <key>/_c_<id>-__WRIT__0000000007, <key>/_c_<id>-__READ__0000000008    InterProcessReadWriteLock
//	Mutex      <key>/_c_<id>-lock-0000000007                                         InterProcessMutex
//	Semaphore  <key>/locks/_c_<id>-lock-0000000007, <key>/leases/_c_<id>-lease-…     InterProcessSemaphoreV2
//
// All of these are ephemeral. A node is a place in the queue, and it holds the key once nothing before it is in its way; in the
// semaphore a place becomes a lease by a transaction. For ours, id is the owner, a digest of the label and the session: a
// node is found again by its name when the answer to its create was lost. The data has the label, after a line of ours. Whatever
// is named otherwise is another program's: it is respected and shown, and never changed. Below <root>/.released is a node for
// each owner that was released while a request of it may have been under way, for ten seconds.
//
// This is layout 1, as the data of each node says (hasp/1). A later one has names with v2, v3 … before the marker; a key with such a name is
// refused, and nothing of it is changed or removed.
//
// Another client of an owner (hasp's Adopt, or a copy of a request) takes its node over by a transaction that deletes it and makes one of
// the same number, and so does a downgrade, which makes a writer a reader: no owner gets in between.
//
// # Leases
//
// A [Conn] is one session. While its process lives it ends leases and places that were not renewed for their TTL; when the
// process dies the servers do, after the session's time-out. So a holder that crashed keeps others waiting for the time-out,
// and a process that stands still for longer than that loses everything. Choose ConnOptions.SessionTimeout by that.
//
// A renewal is one write for all leases of a Conn, and reads after it that find their nodes. A TTL is never promised beyond the moment before
// which the session cannot have expired, and this is not the time-out counted from that write: the leader commits a write that came by a
// follower without taking it for a sign of life. Signs of life reach the leader with the follower's answers to its
// pings, every half tick. When the follower is cut off between the two, the session ends earlier: 1.4 seconds after a write, with a time-out
// of 4 seconds (tried). A promise therefore counts from the last sign of life that is a quarter of the time-out older than the write: two
// thirds of the time-out in the ordinary case, which is Traits.MaxTTL. This relies on servers with a shortest session of two
// ticks or more, as by default (minSessionTimeout), and on a leader that is never stopped for longer than a quarter of the
// time-out and goes on as the leader: syncLimit bounds that, to 10 seconds by default. A session of less than 12 seconds may
// be over by then; of a longer one a promise is too long only if the client's server, too, fails in the half tick in which
// the leader goes on. Ask for the default, or more.
//
// The fence of a lease is the zxid of the write that made its node, times 64: a zxid is given to one write of the ensemble only, and
// later ones are larger. The number in a name is none: it wraps, and begins anew with the directory.
//
// # What is promised
//
// No two holders, and rising fences, over crashes and restarts of servers, changes of the leader, partitions, steps of any clock and lost, late or
// repeated messages; not when the ensemble loses its data, or is restored from a backup. Every grant follows a write of its owner's session that went
// through the leader: what a server shows without one may be old, on the leader even after a sync. A waiter that sees the last node before
// its own go is told that it has the key (driver.Handover), and claims it with a write behind: its node had the key at some moment of its wait,
// and while the session is assured only an operator can have ended that since. In the semaphore's layout it asks first.
// Waiters are served in order, and each watches the one before it, so that a release wakes only the next.
// A lease that is over is told (Driver.Tell) when the server says so.
//
// Not promised: the mark of a holder that did not finish (Traits.Abandons), and how long a lease lasts without renewal, which only its own
// process knows (Info.Left is 0). Programs of Java know nothing of limits other than their own, of shared leases in the semaphore's layout without
// a limit, and of fences. At a number of 2,147,483,647 nodes in one directory that was never empty Curator's order breaks; ours does not.
//
// # Connections
//
// A connection that says nothing to a request for 2 seconds, or for a sixth of the shortest lease, is given up, and the session goes on over another; a
// server that is slow is given more. A session that had no answer for its whole time-out is over, so that servers that were emptied, or
// have an older state, serve this process again.
//
// A server takes 60 connections of one host (maxClientCnxns), and each Conn is one. Beyond that it closes new ones at once, without a
// word. A Conn that has a session tries again within a second, and a Conn that holds a lease within a fifth of that; any
// other waits for seconds, and leaves the last connection to those. Raise the limit where more processes of a host wait.
//
// Where a password changes, give ConnOptions.Login: it is asked at each connection, and after a refusal.
//
// # Leftovers
//
// A node in a queue that belongs to no session, made by hand or brought back from a backup, stays for ever. hasp leaks finds
// it (Driver.ListLeftovers). Another program's node is foreign. One of ours is live while it was written less than its owner's
// TTL ago, by the clock of the leader: an owner that renews makes its node one of its session again. A place is left over a
// minute later than that. Marks of released owners that belong to no session are left over, too, and so are plain directories
// of keys that have been empty for ten minutes, as old programs leave them. They look like containers, and nodes do not say
// since when they have been empty: it takes another node below the root, written later and ten minutes ago, to know.
//
// A removal deletes only what belongs to no session, as it was listed, whatever has become of the name: in one step it
// makes a child of the node, which an ephemeral one cannot have, and deletes both.
//
// # The client
//
// The driver speaks the protocol itself. With go-zookeeper a call cannot be ended by a context and some hang, pings prove nothing, a lost
// connection does not say whether a request was sent, watches on the node's children cannot be told from lost ones, and after a
// session expired calls silently go on in the next one. Each of these is a case that a lock has to get right.
package zkdriver

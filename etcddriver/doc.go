// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcddriver keeps locks in etcd, 3.4 or later.
//
//	client, err := etcddriver.Connect(clientv3.Config{
//		Endpoints: []string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"},
//	}, nil)
//	locks, err := hasp.New(etcddriver.New(client, nil), nil)
//
// # Layout
//
// All that etcd has of a lock is below prefix + key + "|", where each byte of the key that is not a
// printable ASCII character, or is "%" or "|", is written as %XX. An owner has one key there:
//
//	hasp/orders/42|w|OWNER.LABEL
//
// w for an owner that asks Exclusive, r for Shared, s for Shared with a Limit, c for a holder that
// converted. LABEL is a hash; the value has the label, and says whether the owner holds the
// key or waits for it. Every key of etcd is on a lease.
//
// The order of the create revisions is the queue. An owner in it holds the key, or may claim it, when
// it can be beside all owners before it. That needs no compare-and-set, and once true it stays
// true: later owners stand behind it, and those that leave only make room. One transaction grants a free
// key, or the key to a waiter after the owner before it left. The fence is the create revision times
// 1024, so that one grant has as many fences for turns; a converted lease keeps its
// first one.
//
// Beside a holder's key that is Exclusive or has a Limit stands a mark (u), on a lease that
// outlives the holder's by a quarter of an hour at least. A release deletes both; when the holder's
// lease expires, the mark alone is left, and says so to the next holder. An owner that was released
// unsettled has a key z for ten seconds, so that a Try that comes late is refused.
//
// A value of a later layout begins with its number, as v2. A version that does not know it refuses the lock with a
// [LayoutError], and changes nothing; a holder beside it is renewed.
//
// # Leases
//
// A lease of etcd has any number of keys. Newcomers share one for a second, so that a lock
// costs no request for its lease; it lasts a second longer than was asked for. Once no owner is on it, it
// is kept alive for the next newcomers; else only by a Renew that names all its owners. Otherwise the named
// owners move to a lease of their own, in the transaction that looks at their keys anyway, and the others expire. So
// a TTL ends a lease whether the process has died or is alive and silent, and it is etcd alone
// that ends it. Owners that are renewed together stay together: a round of 10,000 is one keep-alive
// and 80 transactions, which only read.
//
// A renewal counts from before its keep-alive was sent. A keep-alive proves nothing by itself, as
// etcd has answered for leases that were revoked: the keys are looked at after it.
//
// # Promises
//
// Exclusion and the order of fences hold over crashes, restarts and changes of the leader, since all
// members agree on them. That a holder knows of its end in time also needs clocks that run equally
// fast, within the hundredth that hasp allows for; leases expire by the leader's monotonic clock, so that steps
// of wall clocks do no harm, and a new leader begins them anew. A cluster that was restored from a
// snapshot goes back to older fences, unless its revision is bumped (etcdutl snapshot restore
// --bump-revision).
//
// TTLs are whole seconds, and at least three halves of the servers' election time-out: 2 s with
// etcd's default. A lease ends up to two seconds after its TTL: one is the newcomers', and the
// rest is the time that etcd takes to notice. A waiter gets hints from a watch on what is before it, and
// looks for itself every third of its patience. An etcd that is
// out of space (NOSPACE) still renews leases that stay together, and releases; it grants nothing.
//
// Servers before 3.4.31 and 3.5.13 may revoke leases that were renewed, after their leader was stalled:
// the holder is told, a moment too late. Fences cover that.
//
// # Leftovers
//
// A key without a lease, written with etcdctl or copied from another cluster (etcdctl make-mirror takes
// no leases along), stays for ever. hasp leaks finds it (Driver.ListLeftovers): a holder's, a waiter's, a mark, a z, and what
// hasp did not write and stands in a lock's way. A holder that renews puts its key on a lease again. Whether its
// owner may do that is known from the versions of the key: while the lease stands that it was on, the key is live, and is
// not removed. Once etcd was compacted, a writer's mark tells; nothing does for a reader's key, which gets a lease of an
// hour instead of being removed, and a waiter's key one of a minute.
//
// A sweep reads pages of 500 keys, in ranges that have a few thousand at most where it can: etcd counts all keys of a range,
// however few are asked for, and takes no write meanwhile (20 ms among 200,000).
//
// # The client
//
// Any client of etcd will do; that of [Connect] suits locks better, and asks [ConnectOptions].Login for the password at each
// login. With one of clientv3.New, set DialKeepAliveTime: a member
// that hangs answers nothing, and by default the client goes on sending it every third request. gRPC takes no less than
// ten seconds, so that a half-open connection may cost a lease of less than some 30 s. With a password that client logs
// in for each stream, which are two here, and for each request with a refused token; and on etcd 3.4 it can log in
// no more once a JWT has expired.
//
// Such a client's Close may wait for ever, in its watcher, after a watch was refused, as with a token that is over: call
// it in a goroutine of its own, and close the client's ActiveConnection after some seconds. Connect's client does so.
//
// A member that is cut off from the others is passed over at once. All leases are kept alive on one stream. A stream of
// watches that has waiters is tried every five seconds.
//
// The user of the client needs permission to read and write below the prefix.
package etcddriver

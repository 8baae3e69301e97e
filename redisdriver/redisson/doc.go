// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package redisson keeps hasp's locks in Redis as Redisson does, so that programs in Go and in Java take turns
// on the same locks, and wake each other:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	locks, err := hasp.New(redisson.New(rdb, &redisson.Options{Kind: redisson.Fair}), nil)
//	lease, err := locks.Mutex("orders", nil).Lock(ctx) // redisson.getFairLock("orders").lock()
//
// Use it where Java holds the locks, too. Where all programs are in Go, package redisdriver promises more: a queue and fences for
// every lock, and a release that hands the key off.
//
// A name has one [Kind], on both sides, and both use the same database. Redisson's semaphores and latches are no locks: see
// [Synchronizers].
//
// # What each kind gives
//
// Lock is getLock, and excludes getNonReentrantLock and getSpinLock, too. Waiters have no order. There are no fences, since Java's
// grants in between take no number: it gives efficiency, not correctness.
//
// Fair is getFairLock. Threads of Java's and owners of hasp's are granted the lock in the order in which they came.
//
// Fenced is getFencedLock. Its fence is Redisson's own counter, redisson_lock_token:{name}, which never expires: one key remains for
// each name that was ever locked. A getLock of the same name in Java excludes it, and takes no fence. Where the counter is lost, fences
// begin again at 1, and guards refuse every new holder: do not call delete() on a fenced lock in Java, and raise the counter by hand after
// a server has lost data.
//
// ReadWrite is getReadWriteLock, for hasp.RWMutex. Waiters have no order, and readers that come and go may starve a writer. No
// TTL may be longer than Redisson's lockWatchdogTimeout, which Options.LockWatchdogTimeout states: when Redisson renews a
// reader of Java's, the lock of all readers ends so long after that, and once that program has died a writer would be
// granted the lock under a longer lease of hasp's.
//
// None of them reports a key as abandoned, and none can have a number of holders. A master that fails may lose its latest grants:
// Traits.Survives is 0, as in package redisdriver without a node record.
//
// # Waiting
//
// Use Redisson 3.24 or later, and 3.52 or later for fair locks with a NameMapper.
//
// A release sends Redisson's message, by PUBLISH, or in a cluster by SPUBLISH, as Redisson does on Redis 7. (In a cluster of Redis 6, or with
// Redisson's shardedSubscriptionMode OFF, neither side gets the other's messages: hasp then asks every second, and Java when the lease has
// ended.) In each process a message is a hint for the waiter that has waited for longest; if that one wants
// to read, for all readers. A spin lock of Java's sends none: of the waiters here for one key, the first asks every
// second, and the others more rarely.
//
// In the queue of a fair lock a waiter of hasp's shows that it is alive, and the other clients of hasp's take it out when it has not for its
// patience (10 s), wherever it stands. Java takes out only the first, and only when its score has passed, which for a waiter of hasp's is its
// patience, too, once it is the first. A thread of Java's that dies as the first holds all others up for its fairLockWaitTimeout,
// 5 minutes, as in Redisson. The clocks of the Java hosts and the server must be right to a few seconds, since Java puts its own
// time into the queue.
//
// # Semaphores and latches
//
// [Synchronizers] has getSemaphore, getPermitExpirableSemaphore and getCountDownLatch. They are no locks: a permit of
// a Semaphore has no holder, nothing renews any, and waiters have no order. Their keys are Redisson's own; beside them
// stands only hasp.gone:…, for 10 seconds, where it is not known whether a permit was acquired. Leases of permits are by the server's
// clock, and Java's by its host's. A number that is no number of permits is an error, and stays as it is. A full server takes back permits and
// counts events. In a cluster a latch's name must have no braces: Redisson's own has its keys in two hash slots then.
//
// After a loss of the server's data, a FLUSHALL or an eviction, semaphores and latches are gone, as in Redisson: a latch
// that is gone is open, so that Wait returns nil with events still to come, and a semaphore has no permits, so that
// Acquire waits until they are set again.
//
// A waiter also asks every 3 seconds, so that it goes on after a lost message, where Redisson's may wait for the next one. As in Redisson, a
// Semaphore's permits are lost with a reply that is lost, or a process that ends: use a PermitExpirableSemaphore with a lease where that matters.
//
// # Layout
//
// Redisson's keys are as it writes them. An owner of hasp's is a field of the form <uuid>:<number>: 128 of its bits are the UUID, and
// the other two a number from 2^62 on, which no thread has. What the hash has no room for (label, since, fence) stands beside it,
// in keys that begin with "hasp.", lie in the same slot, and expire: hasp.redisson:… and hasp.redisson.waiters:…, and hasp.gone:…
// for an owner that was released a moment ago. A queue that hasp has used expires a day after it did so last; Redisson's
// own never does. The counts of a hash stay 1: re-entrance is hasp's own (hasp.LockOptions.Reentrant).
//
// Holders and live waiters of Java's are foreign: shown, respected, never broken. (A thread of Java's at the head of a
// queue is taken out when its time has passed, as Redisson does.) A key of another type is an error; a hash that is no
// lock of this kind is a foreign holder.
//
// In a cluster, Redisson puts a name without braces into them, and leaves one with a brace as it is. A name such as "a{b" or "{}x"
// then has its keys in several hash slots, where no script can reach them all: it is refused, as a misconfiguration.
//
// # Permissions
//
// With ACLs a user needs these, and no more, where k* stands for the names of the locks:
//
//	~k* ~{k* ~redisson_lock_* ~hasp.*
//	&redisson_lock__channel:* &redisson_rwlock:* &hasp.*
//	+evalsha +eval +publish +subscribe +unsubscribe +ping +scan +time +type +exists +pttl +pexpire
//	+get +set +del +incrby +hget +hmget +hset +hdel +hincrby +hexists +hkeys +hlen +hgetall +hstrlen +hrandfield
//	+llen +lindex +lpos +lrange +ltrim +lpush +rpush +lrem +linsert +zadd +zrem +zscore
//
// and for semaphores and latches also
//
//	&redisson_sc:* &redisson_countdownlatch__channel__* +persist +zrange +zremrangebyscore +zcard
//
// In a cluster it also needs +ssubscribe +sunsubscribe +spublish +cluster|slots +command +asking, and for a database other than 0 +select.
// Without the right to subscribe, waiters ask; without that to publish, Java's waiters ask when the lease has ended. Which of these one kind of
// lock takes is in docs/stores/redisson.md.
package redisson

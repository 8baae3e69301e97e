// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/hasplock/hasp/redisdriver/redisson"
)

// takeLayout takes the parameters that say in which layout the locks are. What they are instead is
// not repeated: it may be a part of a password.
func (r *redisKeys) takeLayout(values url.Values) error {
	switch {
	case !values.Has("layout") && values.Has("lock-watchdog-timeout"):
		return errors.New("lock-watchdog-timeout= in the store's URL is a setting of Redisson's, and needs layout=redisson&kind=readwrite")
	case !values.Has("layout") && values.Has("kind"):
		return errors.New("kind= in the store's URL is one of Redisson's locks, and needs layout=redisson")
	case !values.Has("layout"):
		return nil
	case values.Get("layout") != "redisson":
		return errors.New("layout= in the store's URL is none of hasp's for Redis: it is redisson, for the locks of Redisson (Java); " +
			"without it they are hasp's own, the string of SET key value NX PX")
	case values.Has("max-ttl"):
		return errors.New("the store's URL has max-ttl= and layout=redisson: a server grants nothing after a restart only if every client compares " +
			"its record, and Redisson does not")
	case values.Has("replicas"):
		return errors.New("the store's URL has replicas= and layout=redisson: a failover loses no lock only if every client waits for the replicas, " +
			"and Redisson does not know of replicas=")
	}
	r.redisson = true
	if values.Has("kind") {
		var err error
		if r.kind, err = redisson.ParseKind(values.Get("kind")); err != nil {
			return errors.New("kind= in the store's URL is none of Redisson's locks: lock (getLock), the default, fair (getFairLock), " +
				"fenced (getFencedLock) or readwrite (getReadWriteLock)")
		}
	}
	return r.takeWatchdog(values)
}

// minWatchdog is the least that lock-watchdog-timeout may be: less is not meant, such as Redisson's milliseconds.
const minWatchdog = time.Second

func (r *redisKeys) takeWatchdog(values url.Values) (err error) {
	if !values.Has("lock-watchdog-timeout") {
		return nil
	}
	if r.kind != redisson.ReadWrite {
		return errors.New("the store's URL has lock-watchdog-timeout=, and its locks are not those of kind=readwrite: only there Redisson's watchdog " +
			"bounds the leases of others")
	}
	r.watchdog, err = time.ParseDuration(values.Get("lock-watchdog-timeout"))
	if err != nil || r.watchdog < minWatchdog {
		return fmt.Errorf("lock-watchdog-timeout= in the store's URL is not a duration of at least %v, such as 30s", minWatchdog)
	}
	return nil
}

// longest is the longest TTL in Redisson's layout; 0: it has none, or this is another.
func (r *redisKeys) longest() time.Duration {
	if r.kind != redisson.ReadWrite {
		return 0
	}
	return cmp.Or(r.watchdog, redisson.DefaultLockWatchdogTimeout)
}

// errRedlockLayout refuses Redisson's layout for a quorum.
var errRedlockLayout = errors.New("the store's URL has layout=, and several servers of which a majority grants a lock (redlock:). Such a majority proposes " +
	"the fence to each server, which Redisson's layout cannot take. To take turns with its RedissonRedLock, lock the key on every one of its servers " +
	"(in Go: hasp.Locks)")

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// errLost means that the lock was no longer this holder's when it was released.
var errLost = errors.New("the lock was lost while it was held")

// redislock asks again at an interval. The one in its example is long; the short one is
// about the best for a hundred clients.
var redislockPeers = []*peer{
	redislockPeer("redislock", exampleBackoff, "as in its retry example"),
	redislockPeer("redislock 5ms", 5*time.Millisecond, "below its recommended minimum of 16 ms"),
}

const exampleBackoff = 100 * time.Millisecond

func redislockPeer(name string, every time.Duration, why string) *peer {
	return &peer{
		patience: every != exampleBackoff,
		name:     name,
		modules:  []string{"github.com/bsm/redislock", goRedis},
		config: "Obtain with TTL 30 s over a go-redis client with its default options; waits by LinearBackoff(" + every.String() + "), " +
			why + "; asked again until it is granted; no renewal",
		waits: true,
		open: func(_ context.Context, to target) (locker, error) {
			rdb := redis.NewClient(&redis.Options{Addr: to.Redis[0]})
			return &redislockLocker{rdb: rdb, client: redislock.New(rdb), ttl: to.TTL,
				options: redislock.Options{RetryStrategy: redislock.LinearBackoff(every)}}, nil
		},
	}
}

type redislockLocker struct {
	rdb     *redis.Client
	client  *redislock.Client
	ttl     time.Duration
	options redislock.Options
}

func (l *redislockLocker) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	for {
		lock, err := l.client.Obtain(ctx, key, l.ttl, &l.options)
		if err == nil {
			return lock.Release, nil
		}
		// Without a deadline in ctx it gives up after the TTL.
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
	}
}

func (l *redislockLocker) Close() error { return l.rdb.Close() }

var redsyncPeers = []*peer{
	redsyncPeer("redsync", 1, false),
	redsyncPeer("redsync fail-fast", 1, true),
	redsyncPeer("redsync 5 nodes", nodes, false),
	redsyncPeer("redsync 5 nodes fail-fast", nodes, true),
}

func redsyncPeer(name string, n int, failFast bool) *peer {
	config := "one Redis"
	if n > 1 {
		config = "five Redis, a majority wins"
	}
	config += "; WithExpiry(30 s), WithTries so many that it tries until the caller's context ends, its default delay of 50 to 250 ms at random"
	options := []redsync.Option{redsync.WithTries(math.MaxInt32)}
	if failFast {
		options = append(options, redsync.WithFailFast(true))
		config += ", WithFailFast(true)"
	}
	return &peer{
		name:    name,
		modules: []string{"github.com/go-redsync/redsync/v4", goRedis},
		config:  config + "; a go-redis client with its default options for each Redis; no renewal",
		waits:   true,
		open: func(_ context.Context, to target) (locker, error) {
			l := &redsyncLocker{options: append([]redsync.Option{redsync.WithExpiry(to.TTL)}, options...)}
			var pools []redsyncredis.Pool
			for _, addr := range to.Redis[:n] {
				rdb := redis.NewClient(&redis.Options{Addr: addr})
				l.rdbs = append(l.rdbs, rdb)
				pools = append(pools, goredis.NewPool(rdb))
			}
			l.rs = redsync.New(pools...)
			return l, nil
		},
	}
}

type redsyncLocker struct {
	rdbs    []*redis.Client
	rs      *redsync.Redsync
	options []redsync.Option
}

func (l *redsyncLocker) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	m := l.rs.NewMutex(key, l.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ok, err := m.UnlockContext(ctx)
		if err == nil && !ok {
			err = errLost
		}
		if ok { // a majority is enough
			err = nil
		}
		return err
	}, nil
}

func (l *redsyncLocker) Close() error {
	var errs []error
	for _, rdb := range l.rdbs {
		errs = append(errs, rdb.Close())
	}
	return errors.Join(errs...)
}

var rueidislockPeers = []*peer{
	rueidislockPeer("rueidislock", 1, "KeyMajority 1 and NoLoopTracking, as its README says for one Redis of 7.0.5 or later"),
	rueidislockPeer("rueidislock majority 2", 2, "KeyMajority 2, the default: three keys for each lock, here in one Redis; NoLoopTracking"),
}

func rueidislockPeer(name string, majority int32, config string) *peer {
	return &peer{
		name:    name,
		modules: []string{"github.com/redis/rueidis"},
		config: config + "; KeyValidity 30 s, renewed every 15 s; TryNextAfter 1 s, because with its default a server that stalls for 20 ms " +
			"makes a Lock of a free key wait for ever; one rueidis connection a client, which pipelines by itself",
		waits: true,
		open: func(_ context.Context, to target) (locker, error) {
			l, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption:   rueidis.ClientOption{InitAddress: to.Redis[:1]},
				KeyValidity:    to.TTL,
				TryNextAfter:   time.Second,
				KeyMajority:    majority,
				NoLoopTracking: true,
			})
			if err != nil {
				return nil, err
			}
			return rueidisLocker{l}, nil
		},
	}
}

type rueidisLocker struct{ rueidislock.Locker }

func (l rueidisLocker) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	held, cancel, err := l.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error {
		// held is derived from ctx, and the end of ctx is not a loss.
		lost := held.Err() != nil && ctx.Err() == nil
		cancel()
		if lost {
			return errLost
		}
		return nil
	}, nil
}

func (l rueidisLocker) Close() error {
	l.Locker.Close()
	return nil
}

// Go's own mutex is the other end of the scale: no store, no crash, no network.
var localPeers = []*peer{{
	name:   "sync.Mutex",
	config: "Go's own, one for each key, in this process; all clients share it",
	waits:  true,
	local:  true,
	open:   func(context.Context, target) (locker, error) { return localLocker{}, nil },
}}

// localMutexes has the *sync.Mutex of each key.
var localMutexes sync.Map

type localLocker struct{}

func (localLocker) Lock(_ context.Context, key string) (func(context.Context) error, error) {
	v, ok := localMutexes.Load(key)
	if !ok {
		v, _ = localMutexes.LoadOrStore(key, new(sync.Mutex))
	}
	m := v.(*sync.Mutex)
	m.Lock()
	return func(context.Context) error {
		m.Unlock()
		return nil
	}, nil
}

func (localLocker) Close() error { return nil }

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// errTaken means that the key is held, and the peer does not wait.
var errTaken = errors.New("the key is held, and this peer does not wait")

// errLost means that the lock was no longer this holder's when it was released.
var errLost = errors.New("the lock was lost while it was held")

// done makes a loss of what was not done. With several servers a majority is enough: an error may come in spite of success.
func done(f func(context.Context) (bool, error)) unlock {
	return func(ctx context.Context) error {
		ok, err := f(ctx)
		switch {
		case ok:
			return nil
		case err == nil:
			return errLost
		}
		return err
	}
}

// The floor is the least that any lock on Redis has to send, through the client that
// hasp uses: without fence, queue, renewal or waiting.
var floorPeers = []*peer{
	{
		name:  "floor",
		fails: true,
		config: "the bare commands: SET key owner NX PX 30000, and the compare-and-delete script by EVALSHA, over go-redis's AutoPipeline " +
			"(experimental) with its default options",
		open: func(ctx context.Context, to target) (locker, error) {
			rdb := redis.NewClient(&redis.Options{Addr: to.Redis[0]})
			pipe, err := rdb.AutoPipeline()
			if err != nil {
				return nil, errors.Join(err, rdb.Close())
			}
			return newFloor(ctx, rdb, pipe, to.TTL)
		},
	},
	{
		name:   "floor pool",
		fails:  true,
		config: "the same commands over go-redis's connection pool with its default options (10 connections for each processor)",
		open: func(ctx context.Context, to target) (locker, error) {
			rdb := redis.NewClient(&redis.Options{Addr: to.Redis[0]})
			return newFloor(ctx, rdb, rdb, to.TTL)
		},
	},
}

const deleteOwn = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`

// floor sends the commands over send, which belongs to rdb.
type floor struct {
	rdb  *redis.Client
	send redis.Cmdable
	sha  string
	ttl  time.Duration
}

func newFloor(ctx context.Context, rdb *redis.Client, send redis.Cmdable, ttl time.Duration) (locker, error) {
	sha, err := rdb.ScriptLoad(ctx, deleteOwn).Result()
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &floor{rdb, send, sha, ttl}, nil
}

func (f *floor) Lock(ctx context.Context, key string) (unlock, error) {
	owner := rand.Text()
	err := f.send.SetArgs(ctx, key, owner, redis.SetArgs{Mode: "NX", TTL: f.ttl}).Err()
	if errors.Is(err, redis.Nil) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		n, err := f.send.EvalSha(ctx, f.sha, []string{key}, owner).Int()
		if err == nil && n != 1 {
			err = errLost
		}
		return err
	}, nil
}

func (f *floor) Close() error { return f.rdb.Close() }

// redislock asks again at an interval. The one in its example is long; the short one is
// about the best for a hundred clients.
var redislockPeers = []*peer{
	redislockPeer("redislock", 100*time.Millisecond, 0, "as in its retry example"),
	redislockPeer("redislock 5ms", 5*time.Millisecond, patient, "below its recommended minimum of 16 ms"),
}

func redislockPeer(name string, every time.Duration, differs trait, why string) *peer {
	return &peer{
		name: name,
		config: "Obtain with TTL 30 s over a go-redis client with its default options; waits by LinearBackoff(" + every.String() + "), " +
			why + "; asked again until it is granted; no renewal",
		differs: differs,
		open: func(_ context.Context, to target) (locker, error) {
			rdb := redis.NewClient(&redis.Options{Addr: to.Redis[0]})
			return &redislockLocker{rdb, redislock.New(rdb), to.TTL, redislock.Options{RetryStrategy: redislock.LinearBackoff(every)}}, nil
		},
	}
}

type redislockLocker struct {
	rdb     *redis.Client
	client  *redislock.Client
	ttl     time.Duration
	options redislock.Options
}

func (l *redislockLocker) Lock(ctx context.Context, key string) (unlock, error) {
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

func (l *redislockLocker) lockExtendable(ctx context.Context, key string) (extend, unlock unlock, err error) {
	lock, err := l.client.Obtain(ctx, key, l.ttl, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return lock.Refresh(ctx, l.ttl, nil) }, lock.Release, nil
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
		name:   name,
		config: config + "; a go-redis client with its default options for each Redis; no renewal",
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

func (l *redsyncLocker) Lock(ctx context.Context, key string) (unlock, error) {
	_, unlock, err := l.lockExtendable(ctx, key)
	return unlock, err
}

func (l *redsyncLocker) lockExtendable(ctx context.Context, key string) (extend, unlock unlock, err error) {
	m := l.rs.NewMutex(key, l.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, nil, err
	}
	return done(m.ExtendContext), done(m.UnlockContext), nil
}

func (l *redsyncLocker) Close() error { return closeAll(l.rdbs) }

var rueidislockPeers = []*peer{
	rueidislockPeer("rueidislock", 1, "KeyMajority 1 and NoLoopTracking, as its README says for one Redis of 7.0.5 or later"),
	rueidislockPeer("rueidislock majority 2", 2, "KeyMajority 2, the default: three keys for each lock, here in one Redis; NoLoopTracking"),
}

func rueidislockPeer(name string, majority int32, config string) *peer {
	return &peer{
		name: name,
		config: config + "; KeyValidity 30 s, renewed every 15 s; TryNextAfter 1 s, because with its default a server that stalls for 20 ms " +
			"makes a Lock of a free key wait for ever; one rueidis connection a client, which pipelines by itself",
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

func (l rueidisLocker) Lock(ctx context.Context, key string) (unlock, error) {
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

// retryLock asks again after a second. rueidislock gives one command 20 ms; on a busy
// machine that sometimes passes, and then it waits for a notice that the key is free, which
// it deleted itself, and it gets no notices of its own deletions.
func (l rueidisLocker) retryLock(ctx context.Context, key string) (unlock, error) {
	for {
		once, giveUp := context.WithCancel(ctx)
		stuck := time.AfterFunc(time.Second, giveUp)
		unlock, err := l.Lock(once, key)
		inTime := stuck.Stop()
		if err == nil && inTime {
			return func(ctx context.Context) error {
				defer giveUp()
				return unlock(ctx)
			}, nil
		}
		giveUp()
		if ctx.Err() != nil || inTime {
			return nil, err
		}
		if err == nil {
			_ = unlock(ctx) // granted at the last moment, and too late
		}
	}
}

func (l rueidisLocker) Close() error {
	l.Locker.Close()
	return nil
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

const goRedis = "github.com/redis/go-redis/v9"

// errTaken means that the key is held, and the peer does not wait.
var errTaken = errors.New("the key is held, and this peer does not wait")

var haspPeers = []*peer{
	haspPeer(baseline, hasp.LockOptions{}, "hasp's defaults: TTL 30 s, renewal, fences and the queue on; the client with ContextTimeoutEnabled, as its documentation has it"),
	haspPeer(turns, hasp.LockOptions{Cohort: 100 * time.Millisecond}, "as hasp, with Cohort: 100 ms, so that the goroutines of a client take turns on one grant"),
	haspPeer(kept, hasp.LockOptions{Keep: time.Second}, "as hasp, with Keep: 1 s, so that a client that wants a key again has it without the server"),
}

// Options of hasp that are off by default.
const (
	turns = baseline + " cohort"
	kept  = baseline + " keep"
)

func haspPeer(name string, o hasp.LockOptions, config string) *peer {
	return haspOver(func(rdb *redis.Client) driver.Driver { return redisdriver.New(rdb, nil) }, name, o, config)
}

func haspOver(engine func(*redis.Client) driver.Driver, name string, o hasp.LockOptions, config string) *peer {
	return &peer{
		name:    name,
		modules: []string{"github.com/hasplock/hasp", goRedis},
		config:  config + "; redisdriver over a go-redis client with otherwise default options; a Mutex for each acquisition",
		waits:   true,
		turns:   o.Cohort > 0,
		keeps:   o.Keep > 0,
		open: func(_ context.Context, to target) (locker, error) {
			rdb := redis.NewClient(&redis.Options{Addr: to.Redis[0], ContextTimeoutEnabled: true})
			locks, err := hasp.New(engine(rdb), nil)
			if err != nil {
				return nil, errors.Join(err, rdb.Close())
			}
			its := o
			its.TTL = to.TTL
			return &haspLocker{under: rdb, locks: locks, options: its}, nil
		},
	}
}

// haspLocker is a client of hasp.
type haspLocker struct {
	under   io.Closer // the connections
	locks   *hasp.Client
	options hasp.LockOptions
}

func (l *haspLocker) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	lease, err := l.locks.Mutex(key, &l.options).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return lease.Release() }, nil
}

func (l *haspLocker) RLock(ctx context.Context, key string) (func(context.Context) error, error) {
	lease, err := l.locks.RWMutex(key, &l.options).RLock(ctx)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return lease.Release() }, nil
}

func (l *haspLocker) Close() error { return errors.Join(l.locks.Close(), l.under.Close()) }

// The floor is the least that any lock on Redis has to send, through the client that
// hasp uses: without fence, queue, renewal or waiting.
var floorPeers = []*peer{
	{
		name:    "floor",
		modules: []string{goRedis},
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
		name:    "floor pool",
		modules: []string{goRedis},
		config:  "the same commands over go-redis's connection pool with its default options (10 connections for each processor)",
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
	return &floor{rdb: rdb, send: send, sha: sha, ttl: ttl}, nil
}

func (f *floor) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
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

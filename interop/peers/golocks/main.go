// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command golocks is a program that locks with other people's Go clients, for the tests of interop/clients, which say what it is told:
// golocks TTL DEPLOYMENT [DEPLOYMENT …]. Its kinds are redsync, redislock and rueidislock, with the intervals of asking that these have
// by default, and red: a plain lock of Redisson's on each deployment, all of them by hasp.Locks, which no agent does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/jsonrpc"
	"github.com/hasplock/hasp/pipe"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// locks are the clients, and the leases that they have.
type locks struct {
	ttl     time.Duration
	redis   []*redis.Client
	red     []*hasp.Client // over each of them
	rueidis func() (rueidislock.Locker, error)

	last   atomic.Int64
	leases sync.Map // of *lease by name
}

// lease is a lock that is held. A nil error of its functions says that it still was.
type lease struct{ release, state func() error }

var (
	errBusy = failure(pipe.Busy)
	errLost = failure(pipe.Lost)
)

func failure(kind pipe.Kind) error {
	return &jsonrpc.Error{Code: -32000, Message: string(kind), Data: pipe.ErrorData{Kind: kind}}
}

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ttl string, deployments []string) (err error) {
	p := &locks{}
	if p.ttl, err = time.ParseDuration(ttl); err != nil {
		return err
	}
	for _, addr := range deployments {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		c, err := hasp.New(redisson.New(rdb, nil), nil)
		if err != nil {
			return err
		}
		p.redis, p.red = append(p.redis, rdb), append(p.red, c)
	}
	p.rueidis = sync.OnceValues(func() (rueidislock.Locker, error) {
		return rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: deployments[:1]},
			KeyValidity:  p.ttl,
			TryNextAfter: 5 * time.Second, // what a busy machine may need for an answer
		})
	})
	return jsonrpc.New(stdio{os.Stdin, os.Stdout}, p.handle, nil).Serve(context.Background(), nil)
}

type stdio struct {
	*os.File
	out *os.File
}

func (s stdio) Write(b []byte) (int, error) { return s.out.Write(b) }

func (p *locks) handle(ctx context.Context, method string, params json.RawMessage, _ bool) (any, error) {
	var r struct {
		pipe.LockParams
		Kind  string `json:"kind"`
		Lease string `json:"lease"`
	}
	if err := json.Unmarshal(params, &r); err != nil {
		return nil, err
	}
	held, _ := p.leases.Load(r.Lease)
	switch l, known := held.(*lease); {
	case method == "hello":
		return pipe.Hello{Protocol: pipe.Version}, p.redis[0].Ping(ctx).Err()
	case method == "lock":
		l, err := p.lock(ctx, r.Kind, r.Keys[0], r.Wait)
		if err != nil {
			return nil, err
		}
		id := strconv.FormatInt(p.last.Add(1), 10)
		p.leases.Store(id, l)
		return pipe.Grant{Lease: id}, nil
	case method == "release" && known:
		return nil, l.release()
	case method == "status" && known:
		return nil, l.state()
	}
	return nil, fmt.Errorf("not understood: %s %s", method, params)
}

func (p *locks) lock(ctx context.Context, kind, key string, wait *pipe.Millis) (*lease, error) {
	once, bound := wait != nil && *wait == 0, time.Hour // redislock would stop after the TTL, without one
	if wait != nil && !once {
		bound = time.Duration(*wait) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	switch kind {
	case "redsync":
		return p.lockRedsync(ctx, key, once)
	case "redislock":
		return p.lockRedislock(ctx, key, once)
	case "rueidislock":
		return p.lockRueidislock(ctx, key, once)
	case "red":
		return p.lockRed(ctx, key, once)
	}
	return nil, fmt.Errorf("no kind %q", kind)
}

func (p *locks) lockRedsync(ctx context.Context, key string, once bool) (*lease, error) {
	m := redsync.New(goredis.NewPool(p.redis[0])).NewMutex(key, redsync.WithExpiry(p.ttl), redsync.WithTries(1<<30))
	lock := m.LockContext
	if once {
		lock = m.TryLockContext
	}
	err := lock(ctx)
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redsync.ErrFailed) {
		return nil, errBusy
	}
	return &lease{
		release: func() error {
			ok, err := m.Unlock()
			taken := (*redsync.ErrTaken)(nil)
			if errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken) || err == nil && !ok {
				return errLost
			}
			return err
		},
		state: func() error {
			if time.Now().After(m.Until()) {
				return errLost
			}
			return nil
		},
	}, err
}

func (p *locks) lockRedislock(ctx context.Context, key string, once bool) (*lease, error) {
	o := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)} // it has no default
	if once {
		o = nil
	}
	l, err := redislock.Obtain(ctx, p.redis[0], key, p.ttl, o)
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
		return nil, errBusy
	}
	return &lease{
		release: func() error {
			err := l.Release(context.Background())
			if errors.Is(err, redislock.ErrLockNotHeld) {
				return errLost
			}
			return err
		},
		state: func() error {
			left, err := l.TTL(context.Background())
			if err == nil && left == 0 {
				return errLost
			}
			return err
		},
	}, err
}

func (p *locks) lockRueidislock(ctx context.Context, key string, once bool) (*lease, error) {
	l, err := p.rueidis()
	if err != nil {
		return nil, err
	}
	lock := l.WithContext
	if once {
		lock = l.TryWithContext
	}
	// The lock lasts no longer than its context, which the bound of the wait must not end.
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	held, unlock, err := lock(life, key)
	if !stop() || errors.Is(err, rueidislock.ErrNotLocked) {
		if err == nil {
			unlock()
		}
		end()
		return nil, errBusy
	}
	state := func() error {
		if held.Err() != nil {
			return errLost
		}
		return nil
	}
	return &lease{
		release: func() error { // it does not say whether it still held the lock
			defer end()
			err := state()
			unlock()
			return err
		},
		state: state,
	}, err
}

func (p *locks) lockRed(ctx context.Context, key string, once bool) (*lease, error) {
	var all hasp.Locks
	for _, c := range p.red {
		all = append(all, c.Mutex(key, &hasp.LockOptions{TTL: p.ttl}))
	}
	lock := all.Lock
	if once {
		lock = all.TryLock
	}
	l, err := lock(ctx)
	if errors.Is(err, hasp.ErrHeld) {
		return nil, errBusy
	}
	return &lease{release: l.Release, state: l.Err}, err
}

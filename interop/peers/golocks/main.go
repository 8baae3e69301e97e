// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command golocks is a program that locks with other people's Go clients, for the tests of interop/clients: see package lines for what
// it is told. Its kinds are redsync, redislock and rueidislock, with the intervals of asking that these have by default.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hasplock/hasp/interop/peers/internal/lines"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func main() {
	lines.Serve(func(p *lines.Program) (func(context.Context, lines.Request) (*lines.Held, error), error) {
		addr := p.Redis[0].(*redis.Client).Options().Addr
		lockers := sync.OnceValues(func() (rueidislock.Locker, error) {
			return rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
				KeyValidity:  p.TTL,
				TryNextAfter: 5 * time.Second, // what a busy machine may need for an answer
			})
		})
		return func(ctx context.Context, r lines.Request) (*lines.Held, error) {
			if r.Wait > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, r.Wait)
				defer cancel()
			}
			switch r.Kind {
			case "redsync":
				return lockRedsync(ctx, p, r)
			case "redislock":
				return lockRedislock(ctx, p, r)
			case "rueidislock":
				l, err := lockers()
				if err != nil {
					return nil, err
				}
				return lockRueidislock(ctx, l, r)
			}
			return nil, fmt.Errorf("no kind %q", r.Kind)
		}, nil
	})
}

func lockRedsync(ctx context.Context, p *lines.Program, r lines.Request) (*lines.Held, error) {
	m := redsync.New(goredis.NewPool(p.Redis[0])).NewMutex(r.Key, redsync.WithExpiry(p.TTL), redsync.WithTries(1<<30))
	lock := m.LockContext
	if r.Wait == 0 {
		lock = m.TryLockContext
	}
	err := lock(ctx)
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redsync.ErrFailed) {
		return nil, lines.ErrTimeout
	}
	if err != nil {
		return nil, err
	}
	return &lines.Held{
		Unlock: func() error {
			ok, err := m.Unlock()
			taken := (*redsync.ErrTaken)(nil)
			if errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken) || err == nil && !ok {
				return lines.ErrLost
			}
			return err
		},
		Held: func() error {
			if time.Now().After(m.Until()) {
				return lines.ErrLost
			}
			return nil
		},
	}, nil
}

func lockRedislock(ctx context.Context, p *lines.Program, r lines.Request) (*lines.Held, error) {
	o := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)} // it has no default
	if r.Wait == 0 {
		o = nil
	}
	if _, bound := ctx.Deadline(); !bound { // without, it would stop after the TTL
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Hour)
		defer cancel()
	}
	l, err := redislock.Obtain(ctx, p.Redis[0], r.Key, p.TTL, o)
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
		return nil, lines.ErrTimeout
	}
	if err != nil {
		return nil, err
	}
	return &lines.Held{
		Unlock: func() error {
			err := l.Release(context.Background())
			if errors.Is(err, redislock.ErrLockNotHeld) {
				return lines.ErrLost
			}
			return err
		},
		Held: func() error {
			left, err := l.TTL(context.Background())
			if err == nil && left == 0 {
				return lines.ErrLost
			}
			return err
		},
	}, nil
}

func lockRueidislock(ctx context.Context, l rueidislock.Locker, r lines.Request) (*lines.Held, error) {
	// The lock lasts no longer than its context, which the bound of the wait must not end.
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	var held context.Context
	var unlock context.CancelFunc
	var err error
	if r.Wait == 0 {
		held, unlock, err = l.TryWithContext(life, r.Key)
	} else {
		held, unlock, err = l.WithContext(life, r.Key)
	}
	if !stop() || errors.Is(err, rueidislock.ErrNotLocked) {
		if err == nil {
			unlock()
		}
		end()
		return nil, lines.ErrTimeout
	}
	if err != nil {
		end()
		return nil, err
	}
	state := func() error {
		if held.Err() != nil {
			return lines.ErrLost
		}
		return nil
	}
	return &lines.Held{
		Unlock: func() error { // it does not say whether it still held the lock
			defer end()
			err := state()
			unlock()
			return err
		},
		Held: state,
	}, nil
}

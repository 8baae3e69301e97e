// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
)

// slots is how many of S10's clients may hold the semaphore at once.
const slots = 10

// s10 is a semaphore that many processes contend for; each client represents one.
var s10 = scenario{
	name:     "s10",
	metrics:  contended,
	variants: counts("client", 128),
	quick:    counts("client", 32),
	own:      semaphorePeers,
	run: contest{hold: 10 * time.Millisecond, lasts: 3 * time.Second, set: func(_ int, w *worker) {
		w.shares, w.guard.limit = true, slots
	}}.run,
	bars: []bar{
		atLeast(0.9, "128 clients: grants/s at least 0.9 of the counting script's", 128, "grants", script),
		atMost(0.5, "128 clients: p99 wait at most half of the best peer's", 128, "p99", script, tenNames),
		within(baseline, "128 clients: no client more than 1.3 times its fair share", 128, "fairness", most(1.3)),
	},
}

// The semaphores that people often write by hand.
const (
	script   = "counting script"
	tenNames = "redsync, ten names"
)

var semaphorePeers = []*peer{
	{
		name:   baseline,
		config: "a Semaphore for each acquisition; otherwise as above",
		open: func(ctx context.Context, to target) (locker, error) {
			l, err := haspPeers[0].open(ctx, to)
			if err != nil {
				return nil, err
			}
			return haspSlots{l.(*haspLocker)}, nil
		},
	},
	{
		name: script,
		config: "by hand: a script that removes what has expired from a sorted set, counts, and adds (TTL 30 s); asked again every 10 ms; " +
			"a go-redis client with its default options",
		open: func(_ context.Context, to target) (locker, error) {
			return &counting{redis.NewClient(&redis.Options{Addr: to.Redis[0]}), to.TTL}, nil
		},
	},
	{
		name:   tenNames,
		config: "by hand: TryLock of one of ten mutexes at random (WithExpiry(30 s)), asked again with another every 10 ms; a go-redis client with its default options",
		open: func(ctx context.Context, to target) (locker, error) {
			l, err := redsyncPeers[0].open(ctx, to)
			if err != nil {
				return nil, err
			}
			return &names{l.(*redsyncLocker), to.TTL}, nil
		},
	},
}

// haspSlots is a client of hasp that acquires slots.
type haspSlots struct{ *haspLocker }

func (l haspSlots) Lock(ctx context.Context, key string) (unlock, error) {
	return held(l.locks.Semaphore(key, slots, &l.options).Lock(ctx))
}

var countAndAdd = redis.NewScript(`
local now = redis.call("TIME")
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
if redis.call("ZCARD", KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call("ZADD", KEYS[1], now + ARGV[3], ARGV[1])
redis.call("PEXPIRE", KEYS[1], ARGV[3])
return 1`)

// counting is a semaphore that counts.
type counting struct {
	*redis.Client
	ttl time.Duration
}

func (l *counting) Lock(ctx context.Context, key string) (unlock, error) {
	owner := rand.Text()
	err := again(ctx, func() (bool, error) {
		n, err := countAndAdd.Run(ctx, l.Client, []string{key}, owner, slots, l.ttl.Milliseconds()).Int()
		return n == 1, err
	})
	if err != nil {
		return nil, err
	}
	return done(func(ctx context.Context) (bool, error) {
		n, err := l.ZRem(ctx, key, owner).Result()
		return n == 1, err
	}), nil
}

// names is a semaphore made of as many mutexes.
type names struct {
	*redsyncLocker
	ttl time.Duration
}

func (l *names) Lock(ctx context.Context, key string) (unlock, error) {
	var m *redsync.Mutex
	err := again(ctx, func() (bool, error) {
		m = l.rs.NewMutex(fmt.Sprintf("%s/%d", key, mathrand.N(slots)), redsync.WithExpiry(l.ttl))
		err := m.TryLockContext(ctx)
		if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	return done(m.UnlockContext), nil
}

// again asks every 10 ms until it is granted or ctx ends.
func again(ctx context.Context, ask func() (bool, error)) error {
	for {
		ok, err := ask()
		if ok || err != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

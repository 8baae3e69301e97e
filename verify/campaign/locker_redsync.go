// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncLocker is redsync on the same nodes.
type redsyncLocker struct {
	conns []*redis.Client
	locks *redsync.Redsync
	ttl   time.Duration
}

type redsyncLease struct{ *redsync.Mutex }

func openRedsync(j *job) *redsyncLocker {
	l := &redsyncLocker{conns: dial(j.Addrs, j.Strict), ttl: j.MaxTTL}
	var pools []redsyncredis.Pool
	for _, c := range l.conns {
		pools = append(pools, goredis.NewPool(c))
	}
	l.locks = redsync.New(pools...)
	return l
}

func (l *redsyncLocker) lock(ctx context.Context, t *turn) (lease, error) {
	m := l.locks.NewMutex(t.key, redsync.WithExpiry(l.ttl))
	acquire := m.LockContext
	if t.try {
		acquire = m.TryLockContext
	}
	if err := acquire(ctx); err != nil {
		return nil, err
	}
	return redsyncLease{m}, nil
}

func (*redsyncLocker) shares() bool { return false }

func (*redsyncLocker) slow() time.Duration { return 0 }

func (l *redsyncLocker) close() error { return closeAll(l.conns) }

func (redsyncLease) fence() uint64 { return 0 }

func (l redsyncLease) deadline() Mono {
	at := now()
	return at.Add(time.Until(l.Until()))
}

func (redsyncLease) most() Mono { return 0 }

func (redsyncLease) err() error { return errors.ErrUnsupported }

func (redsyncLease) done() <-chan struct{} { return nil }

func (redsyncLease) downgrade(context.Context) error { return errors.ErrUnsupported }

func (l redsyncLease) release() error {
	ok, err := l.UnlockContext(context.Background())
	if err == nil && !ok {
		err = errors.New("not unlocked")
	}
	return err
}

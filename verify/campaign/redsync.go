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
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/player"
	"github.com/redis/go-redis/v9"
)

// redsyncLocks is redsync on the same nodes, a player.Library.
type redsyncLocks struct {
	player.Locks // nil
	conns        []*redis.Client
	locks        *redsync.Redsync
	ttl          time.Duration
}

func openRedsync(j *job, ttl time.Duration) *redsyncLocks {
	l := &redsyncLocks{conns: dial(j.Addrs, j.Strict), ttl: ttl}
	var pools []redsyncredis.Pool
	for _, c := range l.conns {
		pools = append(pools, goredis.NewPool(c))
	}
	l.locks = redsync.New(pools...)
	return l
}

func (l *redsyncLocks) Acquire(ctx context.Context, o *player.Order) (*player.Holding, error) {
	m := l.locks.NewMutex(o.Wants[0].Key, redsync.WithExpiry(l.ttl))
	acquire := m.LockContext
	if o.Try {
		acquire = m.TryLockContext
	}
	if err := acquire(ctx); err != nil {
		return nil, err
	}
	release := func() error {
		ok, err := m.Unlock()
		if err == nil && !ok {
			err = errors.New("not unlocked")
		}
		return err
	}
	return &player.Holding{Leases: []player.Lease{redsyncLease{m}}, Release: release}, nil
}

func (l *redsyncLocks) Close() error { return closeAll(l.conns) }

// redsyncLease is a mutex that is held. It has no fence, and says nothing of a loss.
type redsyncLease struct{ m *redsync.Mutex }

func (l redsyncLease) Key() string                   { return l.m.Name() }
func (l redsyncLease) Owner() string                 { return l.m.Value() }
func (redsyncLease) Fence() uint64                   { return 0 }
func (redsyncLease) Mode() hasp.Mode                 { return hasp.Exclusive }
func (redsyncLease) Slot() int                       { return 0 }
func (redsyncLease) Abandoned() bool                 { return false }
func (l redsyncLease) Deadline() time.Time           { return l.m.Until() }
func (redsyncLease) Done() <-chan struct{}           { return nil }
func (redsyncLease) Err() error                      { return nil }
func (redsyncLease) Downgrade(context.Context) error { return errors.ErrUnsupported }

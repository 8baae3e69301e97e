// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package gocronlock has several schedulers of gocron run each job once: of an occurrence that two of them plan, one runs it, and the other
// finds its mark; if the first one dies, the other runs it.
//
//	gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(locks, gocronlock.Nearest(time.Minute), 25*time.Hour, nil)))
//
// A job is its name (gocron.WithName): two jobs of one name count as one, in different programs, too. gocron does not say for when it planned a
// job: the occurrence is reckoned from the clock; nor how a job ended: one that failed, or that a shutdown cut short, is done; and tells no job
// that its lock is lost: Options.Observe hears of that. With NewElector one leader runs all: where that changes, jobs may be skipped, or run twice.
package gocronlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/hasplock/hasp"
)

// ErrDone says that another scheduler did the job of this occurrence, and ErrFollower that another leads.
var (
	ErrDone     = errors.New("another scheduler has done this occurrence of the job")
	ErrFollower = errors.New("another scheduler leads")
)

type locker func(ctx context.Context, key string) (gocron.Lock, error)

func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) { return l(ctx, key) }

type unlock func() error

func (u unlock) Unlock(context.Context) error { return u() }

// NewLocker returns gocron's Locker, which waits for a scheduler that is at work on the job, and says ErrDone when that has done it.
// occurrence names the one of a job that begins at a time; keep is as of hasp.Client.Once.
func NewLocker(locks *hasp.Client, occurrence func(time.Time) string, keep time.Duration, o *hasp.LockOptions) gocron.Locker {
	return locker(func(ctx context.Context, key string) (gocron.Lock, error) {
		once := locks.Once(key, occurrence(time.Now()), keep, o)
		lease, err := locks.Mutex(key, o).Lock(ctx)
		if err != nil {
			return nil, err
		}
		done, _, err := once.Done(ctx)
		if err == nil && done {
			err = ErrDone
		}
		if err != nil {
			return nil, errors.Join(err, lease.Release())
		}
		return unlock(func() error {
			if err := once.Mark(lease); err != nil {
				return errors.Join(err, lease.Abandon())
			}
			return lease.Release()
		}), nil
	})
}

// Nearest names an occurrence by the nearest multiple of a period, in UTC: for jobs that are planned at such multiples, and begin less than
// half a period later. A minute suits the jobs of a crontab. With gocron.Job.RunNow the run counts as that of the nearest multiple.
func Nearest(period time.Duration) func(time.Time) string {
	return func(now time.Time) string { return now.Round(period).UTC().Format(time.RFC3339) }
}

type elector struct {
	lease atomic.Pointer[hasp.Lease]
	why   atomic.Pointer[error] // it does not lead
}

// NewElector returns gocron's Elector, which stands for election of a key until ctx ends or locks is closed.
func NewElector(ctx context.Context, locks *hasp.Client, key string, o *hasp.LockOptions) gocron.Elector {
	e := &elector{}
	e.why.Store(&ErrFollower)
	go func() {
		for ctx.Err() == nil && !errors.Is(*e.why.Load(), hasp.ErrClosed) {
			err := errors.Join(ErrFollower, locks.Election(key, o).Lead(ctx, func(ctx context.Context, lease *hasp.Lease) error {
				e.lease.Store(lease)
				<-ctx.Done()
				return nil
			}))
			e.why.Store(&err)
			pause, cancel := context.WithTimeout(ctx, time.Second)
			<-pause.Done()
			cancel()
		}
	}()
	return e
}

// IsLeader asks the clock, not the store.
func (e *elector) IsLeader(context.Context) error {
	if lease := e.lease.Load(); lease != nil && lease.Err() == nil {
		return nil
	}
	return *e.why.Load()
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package riverlock has the workers of river, the job queue of PostgreSQL, hold a key of hasp while they work on a job. A job whose key is
// busy, or whose store of locks is away, is snoozed, which costs it no attempt.
//
//	river.NewClient(driver, &river.Config{Middleware: []rivertype.Middleware{riverlock.New(locks, keyOf, 10*time.Second, nil)}, …})
//
// The job's context ends when the lock is lost. A fence does not reach the job's row: take it from FromContext for what the job writes.
package riverlock

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// Middleware is river's WorkerMiddleware.
type Middleware struct {
	river.MiddlewareDefaults
	locks  *hasp.Client
	key    func(*rivertype.JobRow) string
	snooze time.Duration
	o      *hasp.LockOptions
}

var _ rivertype.WorkerMiddleware = (*Middleware)(nil)

// New returns the middleware. key names the key of a job; without one, "", it needs none. snooze is how long a job sleeps whose key is busy.
func New(locks *hasp.Client, key func(*rivertype.JobRow) string, snooze time.Duration, o *hasp.LockOptions) *Middleware {
	return &Middleware{locks: locks, key: key, snooze: max(snooze, 0), o: o}
}

type inContext struct{}

// FromContext returns the lease under which a job works; nil: none.
func FromContext(ctx context.Context) *hasp.Lease {
	lease, _ := ctx.Value(inContext{}).(*hasp.Lease)
	return lease
}

// Work works on a job under its key. Work whose lock was lost has failed: another may have begun.
func (m *Middleware) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) (err error) {
	key := m.key(job)
	if key == "" {
		return work(ctx)
	}
	lease, err := m.locks.Mutex(key, m.o).TryLock(ctx)
	if of := (*hasp.Error)(nil); errors.Is(err, hasp.ErrHeld) || errors.As(err, &of) && of.Class == driver.ClassUnreachable {
		return river.JobSnooze(m.snooze)
	}
	if err != nil {
		return err
	}
	end := lease.Abandon // if work panics
	defer func() {
		if over := end(); errors.Is(over, hasp.ErrLost) || errors.Is(over, hasp.ErrClosed) { // else it was ours throughout
			err = errors.Join(err, over)
		}
	}()
	err = work(context.WithValue(lease.Context(ctx), inContext{}, lease))
	end = lease.Release
	return err
}

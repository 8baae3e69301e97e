// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package asynqlock has the servers of asynq, the task queue of Redis, hold a key of hasp while they work on a task. A task whose key is
// busy, or whose store of locks is away, is tried again later, which is no failure.
//
//	server := asynq.NewServer(redis, asynq.Config{IsFailure: asynqlock.IsFailure})
//	mux.Use(asynqlock.Middleware(locks, keyOf, nil))
//
// When it is tried again asynq.Config.RetryDelayFunc says, and its ErrorHandler is told of it, too. A task that has no retry left (MaxRetry)
// waits for its key, since asynq would archive it. The task's context ends when the lock is lost.
package asynqlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hibiken/asynq"
)

// ErrBusy says that a task did not begin: its key is another's, or the store of locks is away. The error says which.
var ErrBusy = errors.New("the task has to wait for its key")

// IsFailure is for asynq.Config: a task that did not begin has not failed.
func IsFailure(err error) bool { return err != nil && !errors.Is(err, ErrBusy) }

type inContext struct{}

// FromContext returns the lease under which a task works, for its fence; nil: none.
func FromContext(ctx context.Context) *hasp.Lease {
	lease, _ := ctx.Value(inContext{}).(*hasp.Lease)
	return lease
}

// Middleware returns asynq's. key names the key of a task; without one, "", it needs none. nil options mean the defaults.
func Middleware(locks *hasp.Client, key func(*asynq.Task) string, o *hasp.LockOptions) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
			key := key(task)
			if key == "" {
				return next.ProcessTask(ctx, task)
			}
			take := locks.Mutex(key, o).TryLock
			retried, _ := asynq.GetRetryCount(ctx)
			if most, known := asynq.GetMaxRetry(ctx); known && retried >= most {
				take = locks.Mutex(key, o).Lock
			}
			lease, err := take(ctx)
			if of := (*hasp.Error)(nil); errors.Is(err, hasp.ErrHeld) || errors.As(err, &of) && of.Class == driver.ClassUnreachable {
				return fmt.Errorf("%w: %w", ErrBusy, err)
			}
			if err != nil {
				return err
			}
			end := lease.Abandon // if the handler panics
			defer func() {
				if over := end(); errors.Is(over, hasp.ErrLost) || errors.Is(over, hasp.ErrClosed) { // else it was ours throughout
					err = errors.Join(err, over)
				}
			}()
			err = next.ProcessTask(context.WithValue(lease.Context(ctx), inContext{}, lease), task)
			end = lease.Release
			return err
		})
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package asynqlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	asynqlock "github.com/hasplock/hasp/adapters/asynq"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hibiken/asynq"
)

// Two servers work on the tasks of one customer one after the other. A task that found its key busy is tried again,
// which is no retry; a task that has no retry left waits for its key.
func TestTasksOfAKeyTakeTurns(t *testing.T) {
	const tasks = 5
	redis := asynq.RedisClientOpt{Addr: testserver.Redis(t).Addr()}
	store := memdriver.New()
	var working atomic.Int32
	var first sync.Once
	refused := make(chan struct{}, 100)
	done := make(chan int, tasks)
	for range 2 {
		locks, err := hasp.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close() })
		mux := asynq.NewServeMux()
		mux.Use(asynqlock.Middleware(locks, func(task *asynq.Task) string { return string(task.Payload()) }, nil))
		mux.HandleFunc("mail", func(ctx context.Context, _ *asynq.Task) error {
			if working.Add(1) != 1 {
				t.Error("two tasks of a key are at work")
			}
			if asynqlock.FromContext(ctx).Fence() == 0 {
				t.Error("there is no fence")
			}
			first.Do(func() { <-refused }) // its key was busy for another task
			working.Add(-1)
			retried, _ := asynq.GetRetryCount(ctx)
			done <- retried
			return nil
		})
		server := asynq.NewServer(redis, asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel, IsFailure: asynqlock.IsFailure,
			TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 20 * time.Millisecond,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { refused <- struct{}{}; return 20 * time.Millisecond }})
		if err := server.Start(mux); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
	}
	client := asynq.NewClient(redis)
	defer client.Close()
	for i := range tasks {
		if _, err := client.Enqueue(asynq.NewTask("mail", []byte("customer/42"), asynq.MaxRetry(i%2))); err != nil {
			t.Fatal(err)
		}
	}
	for range tasks {
		if retried := <-done; retried != 0 {
			t.Errorf("a task was retried %d times", retried)
		}
	}
}

// A store of locks that does not answer puts a task off; a release that it does not confirm is no failure of a task that is done; a loss is.
func TestStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := fault.New(memdriver.New(), nil)
		locks, err := hasp.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		away := func(fault.Call) fault.Fault { return fault.Fault{Err: fault.ErrLink} }
		runs, lasts := 0, time.Duration(0)
		handler := asynqlock.Middleware(locks, (*asynq.Task).Type, nil)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			runs++
			store.Set(away)
			time.Sleep(lasts)
			return nil
		}))
		work := func(name string) error { return handler.ProcessTask(t.Context(), asynq.NewTask(name, nil)) }
		if err := work("mail"); err != nil {
			t.Errorf("a release that is not confirmed: %v", err)
		}
		if err := work("mail"); runs != 1 || !errors.Is(err, asynqlock.ErrBusy) || asynqlock.IsFailure(err) {
			t.Errorf("%d runs; while the store is away: %v", runs, err)
		}
		store.Set(nil)
		lasts = time.Hour
		if err := work("page"); !errors.Is(err, hasp.ErrLost) || !asynqlock.IsFailure(err) {
			t.Errorf("a lock that was lost: %v", err)
		}
	})
}

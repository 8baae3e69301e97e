// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package asynqlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	asynqlock "github.com/hasplock/hasp/adapters/asynq"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hibiken/asynq"
)

// Two servers work on the tasks of one customer one after the other. A task that found its key busy is tried again,
// which is no retry; one that has no retry left waits.
func TestTasksOfAKeyTakeTurns(t *testing.T) {
	const tasks = 5
	redis := asynq.RedisClientOpt{Addr: testserver.Redis(t).Addr()}
	store := memdriver.New()
	var working, busy atomic.Int32
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
			time.Sleep(20 * time.Millisecond)
			working.Add(-1)
			retried, _ := asynq.GetRetryCount(ctx)
			done <- retried
			return nil
		})
		server := asynq.NewServer(redis, asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel, IsFailure: asynqlock.IsFailure,
			TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 20 * time.Millisecond,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { busy.Add(1); return 20 * time.Millisecond }})
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
	t.Logf("busy %d times", busy.Load())
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Asynq sends mails, of each customer one at a time, however many servers there are.
//
//	go run ./asynq -database localhost:6379
//
// Start it twice: each sends mails to customer 42, in turns. Kill the one at work: the other one goes on when its lease is over.
package main

import (
	"cmp"
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	asynqlock "github.com/hasplock/hasp/adapters/asynq"
	"github.com/hasplock/hasp/open"
	"github.com/hibiken/asynq"
)

var (
	database = flag.String("database", "localhost:6379", "the address of asynq's Redis")
	work     = flag.Duration("work", 2*time.Second, "how long a mail takes")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	redis := asynq.RedisClientOpt{Addr: *database}
	locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	mux := asynq.NewServeMux()
	mux.Use(asynqlock.Middleware(locks, func(task *asynq.Task) string { return task.Type() + "/" + string(task.Payload()) /* of customer 42 */ }, nil))
	mux.HandleFunc("mail", func(ctx context.Context, task *asynq.Task) error {
		log.Printf("at work on a mail to customer %s, fence %d", task.Payload(), asynqlock.FromContext(ctx).Fence())
		select {
		case <-time.After(*work):
			return nil
		case <-ctx.Done(): // of the lock, too
			return context.Cause(ctx)
		}
	})
	server := asynq.NewServer(redis, asynq.Config{IsFailure: asynqlock.IsFailure,
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			if asynqlock.IsFailure(err) {
				return asynq.DefaultRetryDelayFunc(n, err, task)
			}
			return time.Second
		}})
	if err := server.Start(mux); err != nil {
		return err
	}
	defer server.Shutdown()
	client := asynq.NewClient(redis)
	defer client.Close()
	for every := time.Tick(time.Second); ctx.Err() == nil; <-every {
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("mail", []byte("42"))); err != nil {
			return err
		}
	}
	return nil
}

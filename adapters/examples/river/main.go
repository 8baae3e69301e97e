// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// River sends mails, of each customer one at a time, however many workers there are.
//
//	go run ./river -database postgres://…
//
// Start it twice: each sends mails to customer 42, in turns. Kill the one at work: the other one goes on when its lease is over.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	riverlock "github.com/hasplock/hasp/adapters/river"
	"github.com/hasplock/hasp/open"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

var (
	database = flag.String("database", "", "the URL of river's database")
	work     = flag.Duration("work", 2*time.Second, "how long a mail takes")
)

type mail struct {
	Customer string `json:"customer"`
}

func (mail) Kind() string { return "mail" }

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	pool, err := pgxpool.New(ctx, *database)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	err = locks.Mutex("river/migrate", nil).Do(ctx, func(ctx context.Context, _ *hasp.Lease) error {
		_, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	})
	if err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[mail]) error {
		log.Printf("at work on mail %d to customer %s, fence %d", job.ID, job.Args.Customer, riverlock.FromContext(ctx).Fence())
		select {
		case <-time.After(*work):
			return nil
		case <-ctx.Done(): // of the lock, too
			return context.Cause(ctx)
		}
	}))
	customer := func(job *rivertype.JobRow) string {
		var to mail
		if job.Kind != to.Kind() || json.Unmarshal(job.EncodedArgs, &to) != nil {
			return "" // it needs no lock
		}
		return "mail/" + to.Customer
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Middleware:      []rivertype.Middleware{riverlock.New(locks, customer, time.Second, nil)},
		SoftStopTimeout: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	for every := time.Tick(time.Second); ctx.Err() == nil; <-every {
		if _, err := client.Insert(ctx, mail{"42"}, nil); err != nil {
			return err
		}
	}
	<-client.Stopped()
	return nil
}

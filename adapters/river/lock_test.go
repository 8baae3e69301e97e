// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package riverlock_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	riverlock "github.com/hasplock/hasp/adapters/river"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/memdriver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

type mail struct {
	Customer string `json:"customer"`
}

func (mail) Kind() string { return "mail" }

type worker struct {
	river.WorkerDefaults[mail]
	work func(ctx context.Context, job *river.Job[mail]) error
}

func (w *worker) Work(ctx context.Context, job *river.Job[mail]) error { return w.work(ctx, job) }

// Two clients work on the jobs of one customer one after the other. A job that found its key busy is snoozed, which costs it no attempt.
func TestJobsOfAKeyTakeTurns(t *testing.T) {
	const jobs = 5
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, "postgres://postgres@"+testserver.Postgres(t).Addr()+"/postgres?sslmode=disable")
	must(t, err)
	t.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	must(t, err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(t, err)

	store := memdriver.New()
	var working atomic.Int32
	var first, told sync.Once
	snoozed := make(chan struct{})
	done := make(chan *rivertype.JobRow, jobs)
	var client *river.Client[pgx.Tx]
	for range 2 {
		locks, err := hasp.New(store, nil)
		must(t, err)
		t.Cleanup(func() { _ = locks.Close() })
		workers := river.NewWorkers()
		river.AddWorker(workers, &worker{work: func(ctx context.Context, job *river.Job[mail]) error {
			if working.Add(1) != 1 {
				t.Error("two jobs of a key are at work")
			}
			if riverlock.FromContext(ctx).Fence() == 0 {
				t.Error("there is no fence")
			}
			first.Do(func() { <-snoozed }) // its key was busy for another job
			working.Add(-1)
			done <- job.JobRow
			return nil
		}})
		key := func(*rivertype.JobRow) string { return "customer/42" }
		client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
			Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
			Middleware: []rivertype.Middleware{riverlock.New(locks, key, 0, nil)},
			Logger:     slog.New(slog.DiscardHandler), FetchCooldown: 10 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		})
		must(t, err)
		events, unsubscribe := client.Subscribe(river.EventKindJobSnoozed)
		t.Cleanup(unsubscribe)
		go func() {
			for range events {
				told.Do(func() { close(snoozed) })
			}
		}()
		must(t, client.Start(ctx))
		t.Cleanup(func() { _ = client.StopAndCancel(context.Background()) })
	}
	for range jobs {
		_, err := client.Insert(ctx, mail{"42"}, nil)
		must(t, err)
	}
	for range jobs {
		if job := <-done; job.Attempt != 1 {
			t.Errorf("a job is at attempt %d", job.Attempt)
		}
	}
}

// A store of locks that does not answer snoozes a job; a release that it does not confirm is no failure of a job that is done; a loss is.
func TestStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := fault.New(memdriver.New(), nil)
		locks, err := hasp.New(store, nil)
		must(t, err)
		defer locks.Close()
		m := riverlock.New(locks, func(job *rivertype.JobRow) string { return job.Kind }, time.Second, nil)
		runs, lasts := 0, time.Duration(0)
		work := func(kind string) error {
			return m.Work(t.Context(), &rivertype.JobRow{Kind: kind}, func(context.Context) error {
				runs++
				store.Set(func(fault.Call) fault.Fault { return fault.Fault{Err: fault.ErrLink} })
				time.Sleep(lasts)
				return nil
			})
		}
		if err := work("mail"); err != nil {
			t.Errorf("a release that is not confirmed: %v", err)
		}
		if err := work("mail"); runs != 1 || !errors.As(err, new(*rivertype.JobSnoozeError)) {
			t.Errorf("%d runs; while the store is away: %v", runs, err)
		}
		store.Set(nil)
		lasts = time.Hour
		if err := work("page"); !errors.Is(err, hasp.ErrLost) {
			t.Errorf("a lock that was lost: %v", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

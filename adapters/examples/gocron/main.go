// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Gocron makes a report every ten seconds, once, however many replicas schedule it.
//
//	go run ./gocron
//
// Start it twice: of each report one replica says that it is at work, and the other replica that it was done. Kill the replica at work: the
// other makes the same report.
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

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	gocronlock "github.com/hasplock/hasp/adapters/gocron"
	"github.com/hasplock/hasp/open"
)

var work = flag.Duration("work", time.Second, "how long a report takes")

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
	once := gocronlock.NewLocker(locks, gocronlock.Nearest(10*time.Second), time.Hour, nil)
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(once))
	if err != nil {
		return err
	}
	report := gocron.NewTask(func() {
		log.Print("at work on the report")
		time.Sleep(*work)
	})
	_, err = s.NewJob(gocron.CronJob("*/10 * * * * *", true), report, gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, job string, err error) { log.Printf("%s: %v", job, err) })))
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	return s.Shutdown()
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Cron runs a nightly job once, however many replicas have it in their schedule.
//
//	go run ./examples/cron
//
// Each ten seconds, which stand for a night, one of three replicas makes the report, and the other two log its holder.
package main

import (
	"cmp"
	"context"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/open"
)

func main() {
	const night = 10 * time.Second
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var replicas sync.WaitGroup
	for n := range 3 { // in a deployment each is a process
		locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close()
		replicas.Go(func() {
			for sleep(ctx, time.Until(time.Now().Truncate(night).Add(night))) {
				err := once(ctx, locks.Mutex("nightly", nil), night/5, func(ctx context.Context, fence uint64) error {
					log.Printf("replica %d makes the report with fence %d", n, fence)
					return ctx.Err()
				})
				if err != nil {
					log.Printf("replica %d: %v", n, err)
				}
			}
		})
	}
	replicas.Wait()
}

// once runs the job unless another replica does: then the error is hasp.ErrHeld, and this replica does not ask again, so that a
// job whose replica crashes waits for the next night. It keeps the key for atLeast, so that a replica whose clock is late finds
// it held: a job that must never run twice also has to note in its storage for which night it ran.
func once(ctx context.Context, key *hasp.Mutex, atLeast time.Duration, job func(ctx context.Context, fence uint64) error) error {
	lease, err := key.TryLock(ctx)
	if err != nil {
		return err
	}
	defer lease.Release()
	ctx = lease.Context(ctx)
	early := time.Now().Add(atLeast)
	err = job(ctx, lease.Fence())
	sleep(ctx, time.Until(early)) // a replica that is stopped meanwhile frees the key
	return cmp.Or(err, lease.Err())
}

// sleep reports whether ctx has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	slept, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-slept.Done()
	return ctx.Err() == nil
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Worker shares work of which only one worker may do a part at a time: it works until another wants its turn.
//
//	go run ./examples/worker
//
// Three workers take turns of about a second, each with a larger fence, until Ctrl-C. Start it twice: there are six.
package main

import (
	"cmp"
	"context"
	"fmt"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	var workers sync.WaitGroup
	for n := range 3 {
		key := locks.Mutex("index", &hasp.LockOptions{TTL: 3 * time.Second, Reason: fmt.Sprint("worker ", n)})
		workers.Go(func() {
			for ctx.Err() == nil {
				err := turn(ctx, key, func(ctx context.Context, fence uint64) error {
					log.Printf("worker %d indexes a part with fence %d", n, fence)
					indexed, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
					defer cancel()
					<-indexed.Done()
					return ctx.Err()
				})
				if err != nil && ctx.Err() == nil {
					log.Printf("worker %d: %v", n, err)
					time.Sleep(time.Second)
				}
			}
		})
	}
	workers.Wait()
}

// turn waits for the key, and works part by part until ctx ends, the lock is lost, or another worker waits for it.
// Each of these ends the context of the part that is under way.
func turn(ctx context.Context, key *hasp.Mutex, part func(ctx context.Context, fence uint64) error) error {
	return key.Do(ctx, func(ctx context.Context, lease *hasp.Lease) error {
		ctx, enough := context.WithCancel(ctx)
		defer enough()
		go func() {
			select {
			case <-lease.Wanted(): // on SQLite learned at a renewal, each third of the TTL; on Redis at once
				enough()
			case <-ctx.Done():
			}
		}()
		for ctx.Err() == nil {
			if err := part(ctx, lease.Fence()); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil // Do's error says whether the lock was lost
	})
}

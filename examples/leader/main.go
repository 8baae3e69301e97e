// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Leader runs a scheduler in one of several processes, and hands it to another on SIGTERM or when it dies.
//
//	go run ./examples/leader
//
// Start it in two terminals: one leads. Ctrl-C there: it steps down, and the other leads at once, with a larger fence.
// After kill -9 the other leads when the lease has ended, half a minute later.
package main

import (
	"cmp"
	"context"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/open"
)

func main() {
	log.SetPrefix(strconv.Itoa(os.Getpid()) + " ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	log.Print("campaigns")
	// Lead returns after schedule has, or when ctx ends the wait; after a loss it campaigns again.
	log.Print("ends: ", locks.Election("scheduler", nil).Lead(ctx, schedule))
}

// schedule works until ctx ends: on SIGTERM, or before another process can lead. Only then may Lead step down.
func schedule(ctx context.Context, lease *hasp.Lease) error {
	log.Print("leads with fence ", lease.Fence())
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			log.Print("schedules") // whatever is started here is given the fence
		case <-ctx.Done():
			log.Print("steps down: ", context.Cause(ctx))
			return nil
		}
	}
}

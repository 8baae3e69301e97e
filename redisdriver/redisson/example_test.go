// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/go-redis/v9"
)

// A program in Go takes permits of Redisson's, and opens a latch that a program in Java awaits.
func ExampleSynchronizers() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	sync := redisson.NewSynchronizers(rdb, nil)
	defer sync.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	printers := sync.PermitExpirableSemaphore("printers") // redisson.getPermitExpirableSemaphore("printers")
	if _, err := printers.TrySetPermits(ctx, 3); err != nil {
		log.Fatal(err)
	}
	id, err := printers.Acquire(ctx, 30*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	// … print, in less than 30 seconds …
	if err := printers.Release(ctx, id); errors.Is(err, hasp.ErrNotHeld) {
		log.Print("it took longer: somebody else may have printed meanwhile")
	} else if err != nil {
		log.Fatal(err)
	}

	if err := sync.CountDownLatch("printed").CountDown(ctx); err != nil { // redisson.getCountDownLatch("printed")
		log.Fatal(err)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// The client is the program's own: hasp neither closes nor changes it.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer rdb.Close()
	locks, err := hasp.New(redisdriver.New(rdb, nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	ctx := context.Background()
	lease, err := locks.Mutex("orders/42", nil).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	fmt.Println("fence", lease.Fence())
}

// Without a prefix, redsync, redislock and redis-cli call the lock by the same
// name.
func ExampleOptions() {
	d := redisdriver.New(redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true}), &redisdriver.Options{NoPrefix: true})
	fmt.Println(d.Traits().Engine, d.Check())
	// Output: redis <nil>
}

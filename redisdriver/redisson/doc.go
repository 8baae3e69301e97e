// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package redisson keeps hasp's locks in Redis as Redisson does, so that programs in Go and in Java take turns
// on the same locks, and wake each other:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	locks, err := hasp.New(redisson.New(rdb, &redisson.Options{Kind: redisson.Fair}), nil)
//	lease, err := locks.Mutex("orders", nil).Lock(ctx) // redisson.getFairLock("orders").lock()
//
// Package redisdriver keeps another layout, with a queue and fences for all locks: use this one where Java holds them, too.
package redisson

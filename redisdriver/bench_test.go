// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

func BenchmarkEngine(b *testing.B) {
	server := testserver.Redis(b)
	drivertest.Bench(b, drivertest.Harness{New: func(t testing.TB) drivertest.Store {
		return drivertest.Store{Open: func() driver.Driver {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = rdb.Close() })
			return New(rdb, nil)
		}}
	}})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"slices"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// TestSuite runs the suite on each kind.
func TestSuite(t *testing.T) {
	t.Parallel()
	for kind := range Kind(len(kinds)) {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			if kind != Fenced {
				testserver.Variant(t, "another kind of Redisson's locks")
			}
			drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
				server := testserver.Redis(t)
				admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
				t.Cleanup(func() { _ = admin.Close() })
				return drivertest.Store{
					Open: func() driver.Driver {
						rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
						t.Cleanup(func() { _ = rdb.Close() })
						return New(rdb, unbounded(kind, ""))
					},
					Leftovers: func() []string { return leftovers(t, admin) },
					Names:     func() []string { return everything(t, admin) },
				}
			}})
		})
	}
}

// everything lists every key of the server.
func everything(t testing.TB, rdb *redis.Client) (keys []string) {
	t.Helper()
	it := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for it.Next(t.Context()) {
		keys = append(keys, it.Val())
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

// leftovers names the keys that will not expire, but for the counter of a fenced lock, which Redisson keeps for ever.
func leftovers(t testing.TB, rdb *redis.Client) []string {
	t.Helper()
	return slices.DeleteFunc(everything(t, rdb), func(key string) bool {
		return rdb.PTTL(t.Context(), key).Val() != -1 || strings.HasPrefix(key, "redisson_lock_token:")
	})
}

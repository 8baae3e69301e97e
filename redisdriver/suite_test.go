// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// TestSuite runs the suite on the engine, with RESP3 and RESP2.
func TestSuite(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]int{"RESP3": 3, "RESP2": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if protocol == 2 {
				testserver.Variant(t, "RESP2")
			}
			var only *regexp.Regexp
			if protocol == 2 { // replies and messages have another form; the scripts are the same
				only = regexp.MustCompile(`Hint|Watch|Handover|Entered|Join|Told|Inspect|List|RenewReports|RenewOfMany|Hostile|RandomMix`)
			}
			drivertest.Run(t, drivertest.Harness{Parallel: true, Only: only, New: func(t testing.TB) drivertest.Store {
				server := testserver.Redis(t)
				admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
				t.Cleanup(func() { _ = admin.Close() })
				return drivertest.Store{
					Open: func() driver.Driver {
						rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: protocol})
						t.Cleanup(func() { _ = rdb.Close() })
						return unhurried(New(rdb, nil))
					},
					Leftovers: func() []string { return permanent(t, admin) },
					Names:     func() []string { return everything(t, admin) },
					Persist:   func(key string) bool { return persist(t, admin, DefaultPrefix+key) },
				}
			}})
		})
	}
}

// unhurried gives waiters some seconds to claim, as if round trips were slow: the machine may be busy.
func unhurried(d *Driver) *Driver {
	d.delay.ns.Store(1 << 60)
	d.delay.most = 3 * time.Second
	return d
}

// everything lists every key of the server.
func everything(t testing.TB, rdb *redis.Client) (keys []string) {
	t.Helper()
	it := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for it.Next(t.Context()) {
		keys = append(keys, it.Val())
	}
	must(t, it.Err())
	return keys
}

// persist takes the expiry from a lock, and reports whether there was one.
func persist(t testing.TB, rdb redis.UniversalClient, lock string) bool {
	t.Helper()
	ok, err := rdb.Persist(t.Context(), lock).Result()
	stopIf(t, err != nil, "PERSIST of %q: %v", lock, err)
	return ok
}

// permanent names the keys that will not expire.
func permanent(t testing.TB, rdb *redis.Client) []string {
	t.Helper()
	return slices.DeleteFunc(everything(t, rdb), func(key string) bool {
		return rdb.PTTL(t.Context(), key).Val() != -1
	})
}

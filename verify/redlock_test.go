// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// redlockMaxTTL is the longest lease of the suite's cases.
const redlockMaxTTL = 2 * time.Hour

// TestRedlockSuite runs the suite of every engine on Redlock over real servers.
func TestRedlockSuite(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
		var servers []*testserver.Server
		for range 5 {
			servers = append(servers, testserver.Redis(t))
		}
		var names []string
		var each []driver.Driver
		for _, s := range servers {
			names = append(names, s.Addr())
			admin := redis.NewClient(&redis.Options{Addr: s.Addr()})
			t.Cleanup(func() { _ = admin.Close() })
			d := redisdriver.NewNode(admin, redlockMaxTTL, nil)
			t.Cleanup(func() { _ = d.Close() })
			each = append(each, d)
		}
		open := func() *quorum.Driver {
			var nodes []voting.Node
			for _, s := range servers {
				rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
				t.Cleanup(func() { _ = rdb.Close() })
				nodes = append(nodes, redisdriver.NewNode(rdb, redlockMaxTTL, nil))
			}
			// On a machine that is busy with other tests, servers are silent for
			// longer than a lock should wait.
			return quorum.New(nodes, &quorum.Options{Names: names, NodeTimeout: 5 * time.Second})
		}
		first := open()
		must(t, first.Admit(t.Context()))
		must(t, first.Close())
		return drivertest.Store{
			Open: func() driver.Driver { return open() },
			Ended: func(key string) bool {
				return !slices.ContainsFunc(each, func(n driver.Driver) bool {
					info, err := n.Inspect(t.Context(), key)
					must(t, err)
					return info.Held
				})
			},
		}
	}})
}

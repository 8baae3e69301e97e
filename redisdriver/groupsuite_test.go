// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// calm is for how long a master may be silent in a test without a failover, on a machine under load.
const calm = 10 * time.Minute

// quietly is without go-redis's notifications of maintenance, which begin goroutines with each node that a client comes to know.
var quietly = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// TestClusterSuite runs the suite over a cluster of three masters with a replica each. Each case has a prefix of its own.
func TestClusterSuite(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "Cluster")
	c := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: calm})
	open := func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), MaintNotificationsConfig: quietly})
	}
	runShared(t, open, func(f func(context.Context, *redis.Client) error) error {
		cluster := open().(*redis.ClusterClient)
		defer cluster.Close()
		return cluster.ForEachMaster(t.Context(), f)
	})
}

// TestSentinelSuite runs the suite over a master with two replicas that Sentinels watch.
func TestSentinelSuite(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "Sentinel")
	c := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: calm})
	open := func() redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: testserver.MasterName, SentinelAddrs: c.Addrs()})
	}
	runShared(t, open, func(f func(context.Context, *redis.Client) error) error {
		one := open().(*redis.Client)
		defer one.Close()
		return f(t.Context(), one)
	})
}

// runShared runs the suite over servers that the cases share. each calls a function with every master.
func runShared(t *testing.T, open func() redis.UniversalClient, each func(func(context.Context, *redis.Client) error) error) {
	var stores atomic.Int64
	// What differs is which server is asked, and where messages come from; what the scripts do in slots, TestSuiteOnAClusterOfOne tries.
	only := regexp.MustCompile(`Hint|Watch|Handover|Entered|Join|Told|List|Leftover|Look|RenewOfMany|ManyAtOnce|LockAll|LockWaits|Hostile|RandomMix`)
	drivertest.Run(t, drivertest.Harness{Parallel: true, Only: only, New: func(t testing.TB) drivertest.Store {
		prefix := fmt.Sprintf("suite%d:", stores.Add(1))
		names := func(list func(testing.TB, *redis.Client) []string) (all []string) {
			var mu sync.Mutex
			err := each(func(_ context.Context, one *redis.Client) error {
				keys := list(t, one)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, keys...)
				return nil
			})
			must(t, err)
			return slices.DeleteFunc(all, func(key string) bool { return !strings.Contains(key, prefix) })
		}
		return drivertest.Store{
			Open: func() driver.Driver {
				rdb := open()
				t.Cleanup(func() { _ = rdb.Close() })
				return unhurried(New(rdb, &Options{Prefix: prefix}))
			},
			Leftovers: func() []string { return names(permanent) },
			Names:     func() []string { return names(everything) },
			Persist: func(key string) bool {
				rdb := open()
				defer rdb.Close()
				return persist(t, rdb, prefix+key)
			},
		}
	}})
}

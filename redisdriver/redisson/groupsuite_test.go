// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"fmt"
	"os"
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
const calm = 30 * time.Second

func clusterClient(addrs []string) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // they begin goroutines
	})
}

// TestClusterSuite runs the suite over a cluster of three masters, each case with a prefix of its own: for the two kinds with the most to
// store, and for all of them in make verify.
func TestClusterSuite(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "Cluster")
	c := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: calm})
	open := func() redis.UniversalClient { return clusterClient(c.Addrs()) }
	each := func(f func(context.Context, *redis.Client) error) error {
		cluster := clusterClient(c.Addrs())
		defer cluster.Close()
		return cluster.ForEachMaster(t.Context(), f)
	}
	some := []Kind{Fair, ReadWrite}
	if os.Getenv("HASP_TEST_REDISSON_CLUSTER") != "" {
		some = []Kind{Lock, Fair, Fenced, ReadWrite}
	}
	for _, kind := range some {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			runShared(t, kind, open, each)
		})
	}
}

// TestSentinelSuite runs the suite over a master with two replicas that Sentinels watch, for the kind with the most to store.
func TestSentinelSuite(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "Sentinel")
	c := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: calm})
	open := func() redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: testserver.MasterName, SentinelAddrs: c.Addrs()})
	}
	runShared(t, Fair, open, func(f func(context.Context, *redis.Client) error) error {
		one := open().(*redis.Client)
		defer one.Close()
		return f(t.Context(), one)
	})
}

var stores atomic.Int64

// runShared runs the suite over servers that the cases share. each calls a function with every master.
func runShared(t *testing.T, kind Kind, open func() redis.UniversalClient, each func(func(context.Context, *redis.Client) error) error) {
	drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
		prefix := fmt.Sprintf("{suite%d}:", stores.Add(1)) // with a tag any key is in one slot; which are not otherwise, TestBraces looks at
		names := func(list func(testing.TB, *redis.Client) []string) (all []string) {
			var mu sync.Mutex
			err := each(func(_ context.Context, one *redis.Client) error {
				keys := list(t, one)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, keys...)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(all, func(key string) bool { return !strings.Contains(key, prefix) })
		}
		return drivertest.Store{
			Open: func() driver.Driver {
				rdb := open()
				t.Cleanup(func() { _ = rdb.Close() })
				return New(rdb, unbounded(kind, prefix))
			},
			Leftovers: func() []string { return names(leftovers) },
			Names:     func() []string { return names(everything) },
		}
	}})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rueidis

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/rueidis"
)

// open returns a client, which the test closes.
func open(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	o.Dialer.Timeout = time.Minute // NewClient connects, and this machine may be busy
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func at(server *testserver.Server) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{server.Addr()}}
}

// masters are clients of the servers that have keys.
func masters(t testing.TB, c rueidis.Client) (all []rueidis.Client) {
	nodes, err := wrap(c).Masters(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		all = append(all, node.(*client).Client)
	}
	return all
}

// names lists the server's keys with a part; permanent: only keys without an expiry.
func names(t testing.TB, c rueidis.Client, part string, permanent bool) (all []string) {
	for _, one := range masters(t, c) {
		keys, err := one.Do(t.Context(), one.B().Keys().Pattern("*").Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.DeleteFunc(keys, func(key string) bool {
			if !strings.Contains(key, part) {
				return true
			}
			left, _ := one.Do(t.Context(), one.B().Pttl().Key(key).Build()).AsInt64()
			return permanent && left != -1
		})...)
	}
	return all
}

// owning closes its client, which has goroutines.
type owning struct {
	*redisdriver.Driver
	client rueidis.Client
}

func (d owning) Close() error {
	defer d.client.Close()
	return d.Driver.Close()
}

// owningNode and owningFair do, too.
type owningNode struct {
	*redisdriver.Node
	client rueidis.Client
}

type owningFair struct {
	*redisson.Driver
	client rueidis.Client
}

func (d owningFair) Close() error {
	defer d.client.Close()
	return d.Driver.Close()
}

func (n owningNode) Close() error {
	defer n.client.Close()
	return n.Node.Close()
}

// store is a store of the suite, for one case. What is in it has the part in its name.
func store(t testing.TB, o rueidis.ClientOption, admin rueidis.Client, prefix, part string) drivertest.Store {
	return drivertest.Store{
		Open: func() driver.Driver {
			c := open(t, o)
			return owning{New(c, &redisdriver.Options{Prefix: prefix}), c}
		},
		Leftovers: func() []string { return names(t, admin, part, true) },
		Names:     func() []string { return names(t, admin, part, false) },
		Persist: func(key string) bool {
			ok, err := admin.Do(t.Context(), admin.B().Persist().Key(prefix+key).Build()).AsBool()
			return err == nil && ok
		},
	}
}

// TestSuite runs the suite on the engine over rueidis, with RESP3 and RESP2.
func TestSuite(t *testing.T) {
	t.Parallel()
	for name, resp2 := range map[string]bool{"RESP3": false, "RESP2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if resp2 {
				testserver.Variant(t, "RESP2")
			}
			drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
				o := at(testserver.Redis(t))
				o.AlwaysRESP2, o.DisableCache = resp2, resp2
				return store(t, o, open(t, o), redisdriver.DefaultPrefix, "")
			}})
		})
	}
}

// TestOthers runs it with a node record, and on locks of Redisson's.
func TestOthers(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]func(rueidis.Client) driver.Driver{
		"a node": func(c rueidis.Client) driver.Driver { return owningNode{NewNode(c, 2*time.Hour, nil), c} },
		"Redisson": func(c rueidis.Client) driver.Driver {
			return owningFair{NewRedisson(c, &redisson.Options{Kind: redisson.Fair}), c}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testserver.Variant(t, name+" over rueidis")
			drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
				o := at(testserver.Redis(t))
				return drivertest.Store{Open: func() driver.Driver { return over(open(t, o)) }}
			}})
		})
	}
}

// TestGroups runs it over a cluster and over Sentinels, which the cases share.
func TestGroups(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) rueidis.ClientOption{
		"Cluster": func(t *testing.T) rueidis.ClientOption {
			c := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: 10 * time.Minute})
			return rueidis.ClientOption{InitAddress: c.Addrs()}
		},
		"Sentinel": func(t *testing.T) rueidis.ClientOption {
			c := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: 10 * time.Minute})
			return rueidis.ClientOption{InitAddress: c.Addrs(), Sentinel: rueidis.SentinelOption{MasterSet: testserver.MasterName}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testserver.Variant(t, name)
			o := start(t)
			admin := open(t, o)
			var stores atomic.Int64
			drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
				prefix := fmt.Sprintf("suite%d:", stores.Add(1))
				return store(t, o, admin, prefix, prefix)
			}})
		})
	}
}

func BenchmarkEngine(b *testing.B) {
	o := at(testserver.Redis(b))
	drivertest.Bench(b, drivertest.Harness{New: func(t testing.TB) drivertest.Store {
		return drivertest.Store{Open: func() driver.Driver { return New(open(t, o), nil) }}
	}})
}

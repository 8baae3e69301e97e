// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// TestSuite runs the suite on the engine, over the oldest and the newest etcd that are tested. Each
// case has a prefix of its own.
func TestSuite(t *testing.T) {
	t.Parallel()
	for name, start := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runSuite(t, start(t, quick...).Addr())
		})
	}
}

var versions = map[string]func(testing.TB, ...string) *testserver.Server{"3.4": testserver.Etcd, "3.6": testserver.Etcd36}

// quick has leases of a second and logins that cost little, and compacts nothing: see TestCompaction.
var quick = []string{"--heartbeat-interval=50", "--election-timeout=500", "--bcrypt-cost=4"}

const quickElection = 500 * time.Millisecond

func runSuite(t *testing.T, addrs ...string) { drivertest.Run(t, harness(t, addrs...)) }

// overCluster says whether the suite is to run over three members, too.
func overCluster() bool { return os.Getenv("HASP_TEST_ETCD_CLUSTER") != "" }

func harness(t testing.TB, addrs ...string) drivertest.Harness {
	admin := connect(t, addrs...)
	var stores atomic.Int64
	return drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
		prefix := fmt.Sprintf("suite%d/", stores.Add(1))
		return drivertest.Store{
			Open: func() driver.Driver {
				return New(connect(t, addrs...), &Options{Prefix: prefix, ElectionTimeout: quickElection})
			},
			Leftovers: func() []string { return everything(t, admin, prefix, true) },
			Names:     func() []string { return everything(t, admin, prefix, false) },
			Persist:   func(key string) bool { return persist(t, admin, prefix+escape(key)+bar+string(writes)+bar) },
		}
	}}
}

// persist takes the lease from each key below a prefix, as a person does that writes it anew with etcdctl.
// It reports whether there were any.
func persist(t testing.TB, c *clientv3.Client, prefix string) bool {
	t.Helper()
	got, err := c.Get(t.Context(), prefix, clientv3.WithPrefix())
	must(t, err)
	for _, kv := range got.Kvs {
		put, err := c.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
			Then(clientv3.OpPut(string(kv.Key), string(kv.Value))).Commit()
		must(t, err)
		if !put.Succeeded {
			return false
		}
	}
	return len(got.Kvs) > 0
}

// connect returns a client that the test closes.
func connect(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	return dialled(t, clientv3.Config{Endpoints: addrs})
}

func dialled(t testing.TB, o clientv3.Config) *clientv3.Client {
	t.Helper()
	o.Logger = zap.NewNop()
	c, err := clientv3.New(o)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// everything lists the keys in etcd; or those that will not expire.
func everything(t testing.TB, c *clientv3.Client, prefix string, permanent bool) (keys []string) {
	t.Helper()
	got, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(t, err)
	for _, kv := range got.Kvs {
		if !permanent || kv.Lease == 0 {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

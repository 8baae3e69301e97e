// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func BenchmarkEngine(b *testing.B) {
	drivertest.Bench(b, harness(b, testserver.Etcd36(b, quick...).Addr()))
}

// BenchmarkPair compares a lock and its release with the two transactions that any lock over
// etcd needs, in turn.
func BenchmarkPair(b *testing.B) {
	s := testserver.Etcd36(b)
	c := connect(b, s.Addr())
	d := open(b, s.Addr())
	l, err := c.Grant(b.Context(), 3600)
	if err != nil {
		b.Fatal(err)
	}
	var bare, ours time.Duration
	for b.Loop() {
		start := time.Now()
		barePair(b, c, l.ID)
		middle := time.Now()
		r := driver.TryRequest{Claim: claim("k"), TTL: 30 * time.Second}
		grant(b, d, r)
		if err := d.Release(b.Context(), driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, Settled: true}); err != nil {
			b.Fatal(err)
		}
		bare, ours = bare+middle.Sub(start), ours+time.Since(middle)
	}
	b.ReportMetric(float64(bare)/float64(b.N), "bare-ns")
	b.ReportMetric(float64(ours)/float64(b.N), "driver-ns")
	b.ReportMetric(float64(ours)/float64(bare), "ratio")
}

func barePair(b *testing.B, c *clientv3.Client, lease clientv3.LeaseID) {
	b.Helper()
	owner := rand.Text()
	key := "bare/k/" + owner
	got, err := c.Txn(b.Context()).If(none("bare/k/", "bare/k0")).Then(clientv3.OpPut(key, owner, clientv3.WithLease(lease))).Commit()
	if err != nil || !got.Succeeded {
		b.Fatal(got, err)
	}
	got, err = c.Txn(b.Context()).If(clientv3.Compare(clientv3.CreateRevision(key), ">", 0)).Then(clientv3.OpDelete(key)).Commit()
	if err != nil || !got.Succeeded {
		b.Fatal(got, err)
	}
}

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
// etcd needs, in turn. The medians count, since a mean is that of the few that waited for the machine.
//
//	go test -run - -bench Pair -benchtime 5000x ./etcddriver
func BenchmarkPair(b *testing.B) {
	s := testserver.Etcd36(b)
	var counts [2]tally
	c := counts[0].connect(b, s.Addr())
	d := opened(b, counts[1].connect(b, s.Addr()))
	l, err := c.Grant(b.Context(), 3600)
	if err != nil {
		b.Fatal(err)
	}
	pair := []func(){func() { barePair(b, c, l.ID) }, func() {
		r := driver.TryRequest{Claim: claim("k"), TTL: 30 * time.Second}
		grant(b, d, r)
		if err := d.Release(b.Context(), driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, Settled: true}); err != nil {
			b.Fatal(err)
		}
	}}
	var took [2][]float64
	for i := range counts {
		pair[i]() // it connects
		counts[i].on.Store(true)
	}
	for b.Loop() {
		for i := range pair {
			start := time.Now()
			pair[i]()
			took[i] = append(took[i], float64(time.Since(start)))
		}
	}
	for i, name := range []string{"bare", "driver"} {
		b.ReportMetric(median(took[i]), name+"-ns")
		counts[i].report(b, name, b.N)
	}
	b.ReportMetric(median(took[1])/median(took[0]), "ratio")
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

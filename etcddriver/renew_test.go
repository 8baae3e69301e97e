// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lasts is how long an owner's key lasts, as etcd says.
func lasts(t *testing.T, d *Driver, r driver.TryRequest) time.Duration {
	t.Helper()
	on, _ := own(t, d, r, writes)
	left, err := d.client.TimeToLive(t.Context(), clientv3.LeaseID(on))
	must(t, err)
	return time.Duration(left.TTL) * time.Second
}

// TestOverlappingRenews: a Renew for less, while one for more is under way, takes nothing away from
// what that one is answered.
func TestOverlappingRenews(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		carried, goOn := make(chan struct{}), make(chan struct{})
		var armed atomic.Bool
		d := replied(t, s, func(req any) {
			if _, ok := req.(*pb.TxnRequest); ok && armed.CompareAndSwap(true, false) {
				close(carried)
				<-goOn
			}
		})
		a, b := ask(claim("a"), time.Hour), ask(claim("b"), time.Hour)
		together(t, d, a, b) // so that a has to leave b's lease
		age(d, time.Hour/2)
		long := a
		long.TTL = 2 * time.Hour
		armed.Store(true)
		extended := make(chan driver.Renewal, 1)
		go func() { extended <- renew(t, d, long)[0] }()
		comes(t, carried, "the transaction of a Renew")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // it waits for the other one
		defer cancel()
		d.Renew(ctx, []driver.RenewRequest{{Claim: a.Claim, TTL: a.TTL}}, func(_ int, got driver.Renewal) {
			if got.Err != nil && !errors.Is(got.Err, context.DeadlineExceeded) {
				t.Error(got.Err)
			}
		})
		close(goOn)
		if got := comes(t, extended, "the end of the Renew"); got.Err != nil || got.TTL < long.TTL {
			t.Errorf("extended: %+v", got)
		}
		if left := lasts(t, d, a); left < 100*time.Minute {
			t.Errorf("another Renew shortened a lease of two hours to %v", left)
		}
	})
}

// TestManyRenewsOfOneOwner: however many are under way at once, or in one Renew, each is
// answered, and the longest counts.
func TestManyRenewsOfOneOwner(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := ask(claim("a"), time.Minute)
		grant(t, d, a)
		for range 5 {
			age(d, time.Hour)
			var wg sync.WaitGroup
			for i := range 10 {
				long, longer := a, a
				long.TTL, longer.TTL = time.Duration(10+i)*time.Minute, time.Duration(20+i)*time.Minute
				wg.Go(func() {
					for i, got := range renew(t, d, a, longer, long) {
						if want := []time.Duration{a.TTL, longer.TTL, long.TTL}[i]; got.Err != nil || got.TTL < want {
							t.Errorf("a Renew for %v: %+v", want, got)
						}
					}
				})
			}
			wg.Wait()
			if left := lasts(t, d, a); left < 28*time.Minute {
				t.Fatalf("the lease lasts for %v, and one asked for 29 minutes", left)
			}
			d.mu.Lock()
			if n := d.records[a.ID()].on.members; n != 1 {
				t.Errorf("its lease has %d members", n)
			}
			d.mu.Unlock()
		}
	})
}

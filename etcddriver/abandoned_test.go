// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestManyVanishedHolders: however many holders of a semaphore vanish, one holder learns of it, also
// when the reply to a transaction that gathers their marks is lost.
func TestManyVanishedHolders(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		const n = chunk + 10
		d, p := tapped(t, s.Addr())
		slot := func() driver.TryRequest {
			r := ask(claim("k"), time.Hour) // none ends by itself, however long so many grants take
			r.Mode, r.Limit = driver.Shared, n
			return r
		}
		vanish := func() {
			for range n {
				if res := grant(t, d, slot()); res.Abandoned {
					t.Fatalf("beside others: %+v", res)
				}
			}
			k := d.names(driver.ID{Key: "k"})
			if _, err := d.client.Delete(t.Context(), k.from(slotted), clientv3.WithRange(k.to(slotted))); err != nil {
				t.Fatal(err)
			}
		}
		for _, first := range []driver.TryRequest{slot(), ask(claim("k"), time.Minute)} {
			vanish()
			n := 0
			p.set(func(*pb.TxnRequest) bool { // the reply to the second one, after the look
				n++
				return n == 2
			})
			if res, err := d.Try(t.Context(), first); err == nil {
				t.Fatalf("the reply was lost, and yet: %+v", res)
			}
			if res := grant(t, d, first); !res.Abandoned {
				t.Fatalf("the first after them: %+v", res)
			}
			p.set(nil)
			give(t, d, first, driver.EndFinished)
			for range 2 {
				next := ask(claim("k"), time.Minute)
				if res := grant(t, d, next); res.Abandoned {
					t.Fatalf("another one after them: %+v", res)
				}
				give(t, d, next, driver.EndFinished)
			}
		}
	})
}

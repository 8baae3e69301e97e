// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestHandover: what becomes of the marks, and of a claim, when a waiter was handed the key.
func TestHandover(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		other := open(t, s.Addr())
		join := func(d *Driver) (driver.TryRequest, <-chan driver.Hint) {
			t.Helper()
			r := ask(claim("k"), time.Minute)
			r.Enters = true
			hints, err := d.Watch(t.Context(), r.Claim)
			must(t, err)
			refuse(t, d, r)
			return r, hints
		}
		waited := func() driver.TryRequest {
			t.Helper()
			z, a := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
			grant(t, other, z)
			refuse(t, other, a)
			give(t, other, z, driver.EndFinished)
			grant(t, other, a)
			return a
		}
		hand := func() (b driver.TryRequest, to driver.Handover) {
			t.Helper()
			a := waited()
			b, hints := join(d)
			give(t, other, a, driver.EndFinished)
			if to = comes(t, hints, "the handover").Handover; to.Fence == 0 || to.Abandoned {
				t.Fatalf("handed %+v", to)
			}
			return b, to
		}
		next := func(what string, marked bool) {
			t.Helper()
			c := ask(claim("k"), time.Minute)
			if res := grant(t, other, c); res.Abandoned != marked {
				t.Errorf("%s: the next is told Abandoned: %v", what, res.Abandoned)
			}
			give(t, other, c, driver.EndFinished)
			if left := everything(t, d.client, "hasp/k|c", false); len(left) > 0 {
				t.Errorf("%s: it leaves %q", what, left)
			}
		}

		b, _ := hand()
		give(t, d, b, driver.EndUnused)
		next("it did not enter", false)
		b, _ = hand()
		give(t, d, b, driver.EndFinished)
		next("it finished without a claim", false)
		b, _ = hand()
		del(t, d, d.names(b.ID()).name(writes))
		next("it vanished", true)

		// The claim is lost, or comes late: it grants nothing to an owner that has released the key.
		b, to := hand()
		var late *pb.TxnRequest
		p.set(func(r *pb.TxnRequest) bool { late = r; return true })
		if got := renew(t, d, b)[0]; got.Err == nil {
			t.Error("the reply was lost, and yet there is no error")
		}
		p.set(nil)
		if res := grant(t, d, b); res.Fence != to.Fence || res.Abandoned {
			t.Errorf("after a claim without an answer: %+v, and not the fence %d", res, to.Fence)
		}
		give(t, d, b, driver.EndFinished)
		if _, err := pb.NewKVClient(d.client.ActiveConnection()).Txn(t.Context(), late); err != nil {
			t.Error(err)
		}
		next("the claim came late", false)

		// A waiter between leaves just before, so that the next one has not seen the holder before it: history tells.
		a := waited()
		first, _ := join(other)
		last, hints := join(d)
		give(t, other, first, driver.EndUnused)
		give(t, other, a, driver.EndFinished)
		for h := (driver.Hint{}); ; h = comes(t, hints, "a hint") {
			if h.Handover.Abandoned {
				t.Errorf("handed %+v", h.Handover)
			}
			if res := try(t, d, last); res.Granted {
				if res.Abandoned {
					t.Errorf("the one before it did not enter: %+v", res)
				}
				break
			}
		}
		give(t, d, last, driver.EndFinished)
		next("it waited behind two", false)

		unhanded := func(what string, a driver.TryRequest, renewed bool) {
			t.Helper()
			b, hints := join(d)
			d.mu.Lock()
			if renewed {
				d.renewing[b.ID()] = make(chan struct{})
			}
			d.mu.Unlock()
			give(t, other, a, driver.EndFinished)
			if to := comes(t, hints, "a hint").Handover; to.Fence != 0 {
				t.Errorf("%s: handed %+v", what, to)
			}
			d.mu.Lock()
			delete(d.renewing, b.ID())
			d.mu.Unlock()
			grant(t, d, b)
			give(t, d, b, driver.EndFinished)
		}
		unhanded("a renewal is under way, which would make it a waiter again", waited(), true)
		a = ask(claim("k"), time.Minute)
		grant(t, other, a)
		unhanded("the holder did not wait", a, false)

		// The lease that its mark would be on is gone.
		a = waited()
		b, _ = join(d)
		rec, _ := other.known(a.ID())
		_, err := d.client.Revoke(t.Context(), rec.mark.id)
		must(t, err)
		give(t, other, a, driver.EndFinished)
		grant(t, d, b)
		give(t, d, b, driver.EndFinished)
		next("it has no mark", false)
	})
}

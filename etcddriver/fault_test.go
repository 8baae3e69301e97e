// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestEachReplyLost loses the reply to one transaction after another in the life of two
// owners, which then ask again: none loses or gains anything by it.
func TestEachReplyLost(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		done := false
		for n := 0; !done; n++ {
			d, p := tapped(t, s.Addr())
			seen := 0
			p.set(func(*pb.TxnRequest) bool {
				seen++
				return seen == n+1
			})
			life(t, d, n)
			done = len(p.lost()) == 0
			if n > 50 {
				t.Fatal("it does not end")
			}
			t.Logf("transaction %d", n)
		}
	})
}

// life is that of a holder and a waiter behind it, which both ask again after an error.
func life(t *testing.T, d *Driver, n int) {
	t.Helper()
	again := func(r driver.TryRequest) driver.Result {
		t.Helper()
		res, err := d.Try(t.Context(), r)
		if err != nil {
			res, err = d.Try(t.Context(), r)
		}
		if err != nil {
			t.Fatalf("with reply %d lost, Try again: %v", n, err)
		}
		return res
	}
	release := func(r driver.TryRequest) {
		t.Helper()
		err := d.Release(t.Context(), driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL})
		if err != nil && !errors.Is(err, driver.ErrNotHeld) {
			if err = d.Release(t.Context(), driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL}); errors.Is(err, driver.ErrNotHeld) {
				err = nil // the first one did it
			}
		}
		if err != nil {
			t.Fatalf("with reply %d lost, Release: %v", n, err)
		}
	}
	a, b, r := ask(claim("k"), time.Hour), ask(claim("k"), time.Hour), ask(claim("k"), time.Hour)
	r.Mode = driver.Shared
	first := again(a)
	if !first.Granted {
		t.Fatalf("with reply %d lost: %+v", n, first)
	}
	if res := again(b); res.Granted || res.Ahead != 0 {
		t.Fatalf("with reply %d lost, the second: %+v", n, res)
	}
	age(d, time.Hour/2)
	if got := renew(t, d, a)[0]; got.Err != nil {
		renewed(t, d, a)
	}
	if res := again(a); res.Fence != first.Fence || res.TTL < a.TTL {
		t.Fatalf("with reply %d lost, asked again: %+v, at first %+v", n, res, first)
	}
	release(a)
	second := again(b)
	if !second.Granted || second.Fence <= first.Fence || second.Abandoned {
		t.Fatalf("with reply %d lost, the second's turn: %+v after %+v", n, second, first)
	}
	again(r)
	down := b
	down.Mode, down.Convert = driver.Shared, true
	if res := again(down); !res.Granted || res.Fence != second.Fence {
		t.Fatalf("with reply %d lost, converted: %+v, it was %+v", n, res, second)
	}
	if res := again(r); !res.Granted || res.Fence <= first.Fence {
		t.Fatalf("with reply %d lost, a reader beside it: %+v", n, res)
	}
	release(r)
	release(b)
	if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Held || info.Waiters != 0 {
		t.Fatalf("with reply %d lost, it is not free: %+v, %v", n, info, err)
	}
	clean := again(ask(claim("k"), time.Minute))
	if !clean.Granted || clean.Abandoned {
		t.Fatalf("with reply %d lost, the key is abandoned: %+v", n, clean)
	}
	for _, key := range everything(t, d.client, DefaultPrefix+"k|", true) {
		t.Errorf("%q stays for ever", key)
	}
	revokeAll(t, d) // the next life begins with a free key
}

// TestLateTryAfterRelease: what was sent before a release and arrives after it is refused.
func TestLateTryAfterRelease(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		for _, c := range []driver.Claim{claim("w"), {Key: "r", Owner: claim("").Owner, Mode: driver.Shared}, {Key: "s", Owner: claim("").Owner, Mode: driver.Shared, Limit: 2}} {
			r := ask(c, time.Minute)
			p.set(func(*pb.TxnRequest) bool { return true })
			if _, err := d.Try(t.Context(), r); err == nil || driver.IsNotSent(err) {
				t.Fatalf("a Try whose reply was lost: %v", err)
			}
			late := p.lost()[0]
			p.set(nil)
			tomb := d.names(r.ID()).name(released)
			before, err := d.client.Get(t.Context(), tomb)
			must(t, err)
			give(t, d, r, driver.EndUnused)
			wrote, err := d.client.Get(t.Context(), tomb, clientv3.WithRev(before.Header.Revision+1)) // as Release left it
			must(t, err)
			if len(wrote.Kvs) != 1 || d.mine(clientv3.LeaseID(wrote.Kvs[0].Lease)).asked < tombTTL {
				t.Errorf("a released owner is remembered as %+v", wrote.Kvs)
			}
			put(t, d, tomb, "") // for longer than its lease, on a slow machine
			if _, err := pb.NewKVClient(d.client.ActiveConnection()).Txn(t.Context(), late); err != nil {
				t.Fatal(err)
			}
			if info, err := d.Inspect(t.Context(), r.Key); err != nil || info.Held || info.Waiters != 0 {
				t.Errorf("a late Try has the key: %+v, %v", info, err)
			}
			refuse(t, d, r)
		}
	})
}

// TestLateClaim: the claim of a waiter that left comes late.
func TestLateClaim(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		a, b, c := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
		grant(t, d, a)
		refuse(t, d, b)
		refuse(t, d, c)
		give(t, d, a, driver.EndFinished)
		p.set(func(*pb.TxnRequest) bool { return true })
		if _, err := d.Try(t.Context(), b); err == nil {
			t.Fatal("the reply was lost, and yet there is no error")
		}
		late := p.lost()[0]
		p.set(nil)
		must(t, d.Release(t.Context(), driver.ReleaseRequest{Claim: b.Claim, TTL: b.TTL, Settled: true}))
		grant(t, d, c)
		if _, err := pb.NewKVClient(d.client.ActiveConnection()).Txn(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Leases != 1 || info.Holder.Owner != c.Owner {
			t.Errorf("after a late claim: %+v, %v", info, err)
		}
	})
}

// TestConvertKeepsWritersOut: a writer that waited before the holder converted is behind it,
// though the holder's key is a later one since.
func TestConvertKeepsWritersOut(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a, w := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
		fence := grant(t, d, a).Fence
		refuse(t, d, w)
		a.Mode, a.Convert = driver.Shared, true
		grant(t, d, a)
		refuse(t, d, w)
		refuse(t, open(t, s.Addr()), w)
		give(t, d, a, driver.EndFinished)
		if res := grant(t, d, w); res.Fence <= fence {
			t.Errorf("the fence is %d after %d", res.Fence, fence)
		}
	})
}

// TestOvertakenGrant: what happens between the look at a lock and the grant decides.
func TestOvertakenGrant(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		other := open(t, s.Addr())
		// A reader that sees the mark of a vanished holder, and a writer that comes then.
		gone := ask(claim("marked"), time.Minute)
		grant(t, d, gone)
		give(t, d, gone, driver.EndUnfinished)
		w := ask(claim("marked"), time.Minute)
		r := ask(claim("marked"), time.Minute)
		r.Mode, r.Queue = driver.Shared, false
		p.before(3, func() { grant(t, other, w) }) // the attempt, the look, the grant
		refuse(t, d, r)

		// A waiter for a slot, whose place is gone then.
		a, b, c := ask(claim("limited"), time.Minute), ask(claim("limited"), time.Minute), ask(claim("limited"), time.Minute)
		for _, r := range []*driver.TryRequest{&a, &b} {
			r.Mode, r.Limit = driver.Shared, 1
		}
		p.before(0, nil)
		grant(t, d, a)
		refuse(t, d, b)
		refuse(t, other, c)
		give(t, d, a, driver.EndFinished)
		p.before(2, func() {
			if err := other.Release(t.Context(), driver.ReleaseRequest{Claim: b.Claim, TTL: b.TTL, Settled: true}); err != nil {
				t.Error(err)
			}
			grant(t, other, c)
		})
		refuse(t, d, b)
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// loss is what a Tell was told.
type loss struct {
	id    driver.ID
	fence uint64
}

func told(d *Driver) <-chan loss {
	ch := make(chan loss, 100)
	d.Tell(func(id driver.ID, fence uint64) { ch <- loss{id, fence} })
	return ch
}

// TestTell: what becomes of a lease is told once, for the lease that it is about, and only when etcd
// says that it is over.
func TestTell(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		other := open(t, s.Addr())
		losses := told(d)
		hold := func(key string) (driver.TryRequest, loss) {
			r := ask(claim(key), time.Minute)
			fence := grant(t, d, r).Fence
			renewed(t, d, r)
			return r, loss{r.ID(), fence}
		}
		// What is not a loss comes first, so that it would be told first.
		lowered, lost := hold("converted here")
		lowered.Mode, lowered.Convert = driver.Shared, true
		grant(t, d, lowered)
		turned, _ := hold("converted elsewhere")
		turned.Mode, turned.Convert = driver.Shared, true
		grant(t, other, turned)

		unknown, _ := hold("released, without an answer")
		p.set(func(*pb.TxnRequest) bool { return true })
		if err := d.Release(t.Context(), driver.ReleaseRequest{Claim: unknown.Claim, TTL: unknown.TTL}); err == nil {
			t.Fatal("the reply was lost, and yet there is no error")
		}
		p.set(nil)

		give(t, other, lowered, driver.EndUnfinished) // before it is renewed again
		if got := comes(t, losses, "the loss of a converted lease"); got != lost {
			t.Errorf("told %+v, want %+v", got, lost)
		}
		deleted, want := hold("revoked")
		lease, _ := own(t, d, deleted, writes)
		if _, err := d.client.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
			t.Fatal(err)
		}
		if got := comes(t, losses, "the loss of a revoked lease"); got != want {
			t.Errorf("told %+v, want %+v", got, want)
		}
		gone, want := hold("silent") // its lease is its own from the renewal on
		brief, over := ask(claim("brief"), 0), driver.ErrNotHeld
		for ttl := time.Second; errors.Is(over, driver.ErrNotHeld); ttl *= 2 { // a slow machine renews none of a second
			brief = ask(claim("brief"), ttl)
			grant(t, d, brief)
			over = renew(t, d, brief)[0].Err
		}
		must(t, over)
		if got := comes(t, losses, "the loss of a lease that expired"); got.id != brief.ID() {
			t.Errorf("told %+v, want that of %+v", got, brief.ID())
		}
		give(t, other, gone, driver.EndFinished)
		if got := comes(t, losses, "the loss of a lease that another released"); got != want {
			t.Errorf("told %+v, want %+v", got, want)
		}
	})
}

// TestLostPlace: a waiter whose place is gone gets a hint, and joins the queue again.
func TestLostPlace(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a, b, hints := behind(t, d, d)
		sign := driver.RenewRequest{Claim: b.Claim, Queue: true, Patience: b.Patience}
		d.Renew(t.Context(), []driver.RenewRequest{sign}, func(_ int, r driver.Renewal) {
			if r.Err != nil || r.RetryIn <= 0 {
				t.Errorf("a sign of life of the first in the queue: %+v", r)
			}
		})
		del(t, d, d.names(b.ID()).name(writes))
		comes(t, hints, "the hint after a place was lost")
		refuse(t, d, b)
		if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Waiters != 1 {
			t.Errorf("it waits again: %+v, %v", info, err)
		}
		give(t, d, a, driver.EndFinished)
		comes(t, hints, "the hint at its turn")
		grant(t, d, b)
	})
}

// TestCompaction: a watch that missed something, since it was compacted while the connection was
// away, is news.
func TestCompaction(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		proxy := faultproxy.New(t, s.Addr())
		d, other := open(t, proxy.Addr()), open(t, s.Addr())
		a, b, hints := behind(t, other, d)
		proxy.Refuse()
		proxy.Reset()
		give(t, other, a, driver.EndFinished)
		got, err := other.client.Get(t.Context(), "k")
		must(t, err)
		put(t, other, "unrelated", "")
		if _, err := other.client.Compact(t.Context(), got.Header.Revision+1); err != nil {
			t.Fatal(err)
		}
		proxy.Clear()
		comes(t, hints, "the hint of a watch that missed something")
		grant(t, d, b)
	})
}

// TestLateWatch: what went before the watch began, and what was waited for from a place that the
// owner had before it watched.
func TestLateWatch(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, other := open(t, s.Addr()), open(t, s.Addr())
		for _, limit := range []int{0, 1} {
			a, b := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
			if limit > 0 {
				a.Mode, a.Limit, b.Mode, b.Limit = driver.Shared, limit, driver.Shared, limit
			}
			grant(t, d, a)
			refuse(t, d, b)
			v, own := viewOf(t, d, b)
			give(t, other, a, driver.EndFinished)
			hints := make(chan driver.Hint, 1)
			d.mu.Lock()
			d.waiters[b.ID()] = &waiter{hints: map[chan driver.Hint]bool{hints: true}}
			d.mu.Unlock()
			d.follow(b.ID(), v, own) // as if this came late
			comes(t, hints, "the hint for what had gone")
			grant(t, d, b)
			give(t, d, b, driver.EndFinished)
		}
		a, b := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
		grant(t, d, a)
		refuse(t, d, b)
		hints, err := d.Watch(t.Context(), b.Claim) // it joined before
		must(t, err)
		give(t, other, a, driver.EndFinished)
		comes(t, hints, "the hint for a waiter that joined before it watched")
		grant(t, d, b)
	})
}

// TestWatchOfAnUnknownPlace: the owner has a place that this driver does not know of, since the reply
// was lost, or another process joined for it.
func TestWatchOfAnUnknownPlace(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		other := open(t, s.Addr())
		for _, lost := range []bool{true, false} {
			a, b := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
			grant(t, other, a)
			if lost {
				p.set(func(*pb.TxnRequest) bool { return true })
				if _, err := d.Try(t.Context(), b); err == nil {
					t.Fatal("the reply was lost, and yet there is no error")
				}
				p.set(nil)
			} else {
				refuse(t, other, b)
			}
			hints, err := d.Watch(t.Context(), b.Claim)
			must(t, err)
			give(t, other, a, driver.EndFinished)
			comes(t, hints, "the hint for a place that the driver did not know")
			grant(t, d, b)
			give(t, d, b, driver.EndFinished)
		}
	})
}

// viewOf is all of a lock, and the owner's part of it.
func viewOf(t testing.TB, d *Driver, r driver.TryRequest) (*view, *entry) {
	t.Helper()
	n := d.names(r.ID())
	got, err := d.commit(t.Context(), nil, []clientv3.Op{n.lists()}, nil)
	must(t, err)
	v, err := d.look(got.Header.Revision, got.Responses[0].GetResponseRange().Kvs)
	must(t, err)
	return v, v.find(n.id)
}

// TestHintsSurviveARestart: the watch goes on where it was.
func TestHintsSurviveARestart(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, other := open(t, s.Addr()), open(t, s.Addr())
		a, b := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
		fence := grant(t, d, a).Fence
		hints, err := other.Watch(t.Context(), b.Claim)
		must(t, err)
		refuse(t, other, b)
		s.Restart()
		renewed(t, d, a)
		give(t, d, a, driver.EndFinished)
		for granted := false; !granted; {
			comes(t, hints, "the hint after a release")
			res := try(t, other, b)
			if granted = res.Granted; granted && res.Fence <= fence {
				t.Errorf("the fence is %d after %d", res.Fence, fence)
			}
		}
	})
}

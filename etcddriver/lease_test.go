// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestManyLeases: what a round of renewals costs. The first moves the owners to a lease of
// their own.
func TestManyLeases(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		const n = 10 * chunk
		d, p := tapped(t, s.Addr())
		var rs []driver.TryRequest
		for i := range n {
			r := ask(claim("k"+strconv.Itoa(i)), time.Hour)
			r.Queue = false
			rs = append(rs, r)
		}
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := w; i < n; i += 16 {
					if res, err := d.Try(t.Context(), rs[i]); err != nil || !res.Granted {
						t.Errorf("Try: %+v, %v", res, err)
					}
				}
			})
		}
		wg.Wait()
		round := func() (keeps, txns int64) {
			start, sent := p.keeps.Load(), p.sent.Load()
			d.mu.Lock()
			for _, l := range d.leases { // as if time had passed
				l.sent = l.sent.Add(-time.Hour / 3)
			}
			d.mu.Unlock()
			for i, got := range renew(t, d, rs...) {
				if got.Err != nil || got.TTL < time.Hour {
					t.Fatalf("renewal %d: %+v", i, got)
				}
			}
			return p.keeps.Load() - start, p.sent.Load() - sent
		}
		keeps, txns := round()
		t.Logf("the first round: %d keep-alives, %d transactions for %d leases", keeps, txns, n)
		if keeps, txns = round(); keeps > 1 || txns > n/chunk {
			t.Errorf("a round of %d leases is %d keep-alives and %d transactions, want 1 and %d", n, keeps, txns, n/chunk)
		}
	})
}

// TestLateMove: a request to put a key on another lease, which had no answer and comes late,
// must not take the key from the lease that a later renewal counted on.
func TestLateMove(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		a, b := ask(claim("a"), time.Hour), ask(claim("b"), time.Hour)
		together(t, d, a, b)
		age(d, time.Hour/2)
		var once sync.Once
		p.set(func(r *pb.TxnRequest) bool {
			lose := false
			once.Do(func() { lose = true })
			return lose
		})
		if got := renew(t, d, a)[0]; got.Err == nil {
			t.Fatalf("the reply was lost, and yet: %+v", got)
		}
		late := p.lost()[0]
		before, _ := own(t, d, a, writes)
		if left := renewed(t, d, a).TTL; left < a.TTL {
			t.Errorf("renewed for %v, want %v", left, a.TTL)
		}
		after, _ := own(t, d, a, writes)
		if after == before {
			t.Error("the key was not moved again, so that the request may still move it")
		}
		if _, err := pb.NewKVClient(d.client.ActiveConnection()).Txn(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		if now, _ := own(t, d, a, writes); now != after {
			t.Errorf("a late request moved the key from lease %x to %x", after, now)
		}
	})
}

// TestVeryLateMove is TestLateMove with a request that comes only after the next renewal, which
// needs not move the key: the other one on its lease has left.
func TestVeryLateMove(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		a, b := ask(claim("a"), time.Hour), ask(claim("b"), time.Hour)
		together(t, d, a, b)
		age(d, time.Hour/2)
		var late *pb.TxnRequest
		p.drop = func(r *pb.TxnRequest) bool {
			late = r
			return true
		}
		if got := renew(t, d, a)[0]; got.Err == nil {
			t.Fatalf("the request was lost, and yet: %+v", got)
		}
		p.drop = nil
		give(t, d, b, driver.EndFinished)
		renewed(t, d, a)
		before, _ := own(t, d, a, writes)
		if _, err := pb.NewKVClient(d.client.ActiveConnection()).Txn(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		if now, _ := own(t, d, a, writes); now != before {
			t.Errorf("a late request moved the key from lease %x to %x", before, now)
		}
	})
}

// together has two owners hold keys on one lease, as newcomers do that come within a second.
func together(t *testing.T, d *Driver, a, b driver.TryRequest) {
	t.Helper()
	for {
		grant(t, d, a)
		grant(t, d, b)
		on, _ := own(t, d, a, writes)
		if other, _ := own(t, d, b, writes); on == other {
			return
		}
		for _, r := range []driver.TryRequest{a, b} { // the machine was slow
			must(t, d.Release(t.Context(), driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, Settled: true}))
		}
	}
}

// age makes the leases of a driver older.
func age(d *Driver, by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.leases {
		l.sent = l.sent.Add(-by)
	}
}

// TestSilentOwnersOfOneLease: an owner that shares a lease keeps its own time, also when it was granted the
// key without knowing it.
func TestSilentOwnersOfOneLease(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		for _, lost := range []bool{false, true} {
			d, p := tapped(t, s.Addr())
			var lives, silent driver.TryRequest
			for shared := false; !shared; { // else the machine was slow
				lives, silent = ask(claim("lives"), time.Hour), ask(claim("silent"), time.Hour)
				lives.Key, silent.Key = "lives"+lives.Owner, "silent"+silent.Owner
				grant(t, d, lives)
				p.set(func(*pb.TxnRequest) bool { return lost })
				if res, err := d.Try(t.Context(), silent); (err != nil) != lost || !lost && !res.Granted {
					t.Fatalf("Try: %+v, %v", res, err)
				}
				p.set(nil)
				a, _ := own(t, d, lives, writes)
				b, _ := own(t, d, silent, writes)
				shared = a != 0 && a == b
			}
			for start := time.Now(); ; {
				age(d, time.Hour/2)
				renewed(t, d, lives)
				if lasts(t, d, silent) <= time.Hour-2*time.Second { // the server's clock: it goes on to its end
					break
				}
				if time.Since(start) > limit {
					t.Fatalf("an owner without renewals is kept alive by another one (its reply was lost: %v)", lost)
				}
			}
			give(t, d, lives, driver.EndFinished)
		}
	})
}

// TestExpiredPool: a lease that etcd does not know any more is not lent again, and a release takes another one.
func TestExpiredPool(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		grant(t, d, ask(claim("k"), time.Minute))
		revokeAll(t, d)
		fence := grant(t, d, ask(claim("k"), time.Minute)).Fence
		revokeAll(t, d)
		waits := ask(claim("k"), time.Minute)
		if next := grant(t, d, waits); next.Fence <= fence || next.TTL < time.Minute {
			t.Errorf("after %d: %+v", fence, next)
		}
		p.before(1, func() { // the release has borrowed it
			d.mu.Lock()
			tomb := d.pool[pool{tombTTL + window, true}].lease.id
			d.mu.Unlock()
			if _, err := d.client.Revoke(t.Context(), tomb); err != nil {
				t.Error(err)
			}
		})
		give(t, d, waits, driver.EndFinished)
	})
}

func revokeAll(t testing.TB, d *Driver) {
	t.Helper()
	all, err := d.client.Leases(t.Context())
	must(t, err)
	for _, l := range all.Leases {
		if _, err := d.client.Revoke(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeepAliveProvesNothing: the lease stands, but the key is gone.
func TestKeepAliveProvesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := ask(claim("k"), time.Minute)
		grant(t, d, a)
		renewed(t, d, a)
		del(t, d, d.names(a.ID()).name(writes))
		if got := renew(t, d, a)[0]; got.Err != driver.ErrNotHeld {
			t.Errorf("renewed a lease without a key: %+v", got)
		}
		b := ask(claim("k"), time.Minute)
		if res := grant(t, d, b); !res.Abandoned {
			t.Error("the next holder does not learn that the one before did not finish")
		}
	})
}

// TestMarkIsRenewed: the mark of a holder stays longer than its lease, however long it is held.
func TestMarkIsRenewed(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a := ask(claim("k"), time.Minute)
		grant(t, d, a)
		before, _ := own(t, d, a, unfinished)
		rec, _ := d.known(a.ID())
		d.mu.Lock()
		rec.mark.sent = rec.mark.sent.Add(-2 * time.Hour)
		d.mu.Unlock()
		renewed(t, d, a)
		after, found := own(t, d, a, unfinished)
		if !found || after == before {
			t.Fatalf("the mark is still on the lease %x (found: %v)", after, found)
		}
		left, err := d.client.TimeToLive(t.Context(), clientv3.LeaseID(after))
		if err != nil || time.Duration(left.GrantedTTL)*time.Second < memory {
			t.Errorf("the mark was put for %d s, %v", left.GrantedTTL, err)
		}
	})
}

// TestAdoptedOwner: two processes that renew one owner do not shorten its lease, nor prolong others'.
func TestAdoptedOwner(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, other := open(t, s.Addr()), open(t, s.Addr())
		a, b := ask(claim("a"), time.Hour), ask(claim("b"), time.Hour)
		together(t, d, a, b)
		shared, _ := own(t, d, b, writes)
		brief := a
		brief.TTL = 2 * time.Second
		if got := renewed(t, other, brief); got.TTL < 50*time.Minute {
			t.Errorf("a lease of an hour was renewed for %v", got.TTL)
		}
		long := a
		long.TTL = 2 * time.Hour
		if got := renewed(t, other, long); got.TTL < long.TTL {
			t.Errorf("renewed for %v, want two hours", got.TTL)
		}
		if now, _ := own(t, d, a, writes); now == shared {
			t.Error("another's lease was prolonged")
		}
		if got := renewed(t, d, a); got.TTL < 100*time.Minute {
			t.Errorf("the driver that it was adopted from shortened it to %v", got.TTL)
		}
		left, err := d.client.TimeToLive(t.Context(), clientv3.LeaseID(shared))
		if err != nil || left.TTL > 3601 {
			t.Errorf("the lease that others share has %d s left, %v", left.TTL, err)
		}
	})
}

// TestRevokedMarkLease: a lease of marks that etcd does not know any more spoils no renewal, and the
// marks are put again.
func TestRevokedMarkLease(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d := open(t, s.Addr())
		a, b := ask(claim("a"), time.Minute), ask(claim("b"), time.Minute)
		grant(t, d, a)
		rec, _ := d.known(a.ID())
		d.mu.Lock()
		rec.mark.sent = rec.mark.sent.Add(-2 * time.Hour) // a's mark needs another lease
		d.mu.Unlock()
		grant(t, d, b) // on the lease for a's mark
		lease, _ := own(t, d, b, unfinished)
		if _, err := d.client.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
			t.Fatal(err)
		}
		for i, got := range renew(t, d, a, b) {
			if got.Err != nil || got.TTL < a.TTL {
				t.Errorf("renewal %d: %+v", i, got)
			}
		}
		for _, r := range []driver.TryRequest{a, b} {
			if _, found := own(t, d, r, unfinished); !found {
				t.Errorf("%s has no mark", r.Key)
			}
		}
		// Nothing has to be put on the lease, and yet the mark is missed.
		lease, _ = own(t, d, b, unfinished)
		if _, err := d.client.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
			t.Fatal(err)
		}
		renewed(t, d, b)
		renewed(t, d, b)
		if _, found := own(t, d, b, unfinished); !found {
			t.Error("a mark that etcd lost is not put again")
		}
	})
}

// TestRevokedTarget: a lease that etcd revokes before keys were moved to it spoils no renewal.
func TestRevokedTarget(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		a, b := ask(claim("a"), time.Minute), ask(claim("b"), time.Minute)
		together(t, d, a, b)
		age(d, time.Minute/2)
		p.before(1, func() {
			old, _ := own(t, d, a, writes)
			all, err := d.client.Leases(t.Context())
			if err != nil {
				t.Error(err)
			}
			for _, l := range all.Leases {
				if int64(l.ID) == old {
					continue
				}
				if _, err := d.client.Revoke(t.Context(), l.ID); err != nil {
					t.Error(err)
				}
			}
		})
		if got := renewed(t, d, a); got.TTL < a.TTL {
			t.Errorf("renewed for %v", got.TTL)
		}
		if _, found := own(t, d, a, unfinished); !found {
			renewed(t, d, a)
			if _, found = own(t, d, a, unfinished); !found {
				t.Error("the mark is not put again")
			}
		}
	})
}

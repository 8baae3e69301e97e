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

// costs counts the transactions of f, and those that etcd has to write to its log.
func (p *tap) costs(f func()) (all, writes int) {
	p.mu.Lock()
	p.drop = func(r *pb.TxnRequest) bool { // called by the one goroutine of f
		all++
		if writesAny(r.Success) || writesAny(r.Failure) {
			writes++
		}
		return false
	}
	p.mu.Unlock()
	f()
	p.mu.Lock()
	p.drop = nil
	p.mu.Unlock()
	return all, writes
}

// TestCosts: what etcd has to write for a lock, and for a key that is handed from one to the next.
func TestCosts(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		a, b := ask(claim("k"), time.Minute), ask(claim("k"), time.Minute)
		now, release := a, driver.ReleaseRequest{Claim: a.Claim, TTL: a.TTL, Settled: true}
		now.Queue = false
		first := b
		first.Queue = false
		grant(t, d, ask(claim("other"), time.Minute)) // it has its leases
		for _, step := range []struct {
			what        string
			f           func()
			all, writes int
		}{
			{"a lock", func() { grant(t, d, now) }, 1, 1},
			{"the first refusal of a key", func() { refuse(t, d, first) }, 2, 1},
			{"another one", func() { refuse(t, d, first) }, 1, 0},
			{"joining the queue", func() { refuse(t, d, b) }, 1, 1},
			{"a release", func() {
				must(t, d.Release(t.Context(), release))
			}, 1, 1},
			{"the waiter's turn", func() { grant(t, d, b) }, 1, 1},
		} {
			if all, writes := p.costs(step.f); all != step.all || writes != step.writes {
				t.Errorf("%s is %d transactions, %d of them written; want %d and %d", step.what, all, writes, step.all, step.writes)
			}
		}
	})
}

// TestLeaseIsUsedAgain: a lease that newcomers shared is kept alive for the next ones once no owner is
// on it, and none may be.
func TestLeaseIsUsedAgain(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server) {
		d, p := tapped(t, s.Addr())
		lock := func() (driver.TryRequest, int64) {
			t.Helper()
			r := ask(claim("k"), time.Hour)
			r.Key, r.Queue = r.Owner, false
			if res := grant(t, d, r); res.TTL < r.TTL {
				t.Errorf("granted for %v", res.TTL)
			}
			on, _ := own(t, d, r, writes)
			return r, on
		}
		r, before := lock()
		give(t, d, r, driver.EndFinished)
		age(d, 2*time.Second)
		keeps := p.keeps.Load()
		stays, after := lock()
		if after != before || p.keeps.Load() != keeps+1 {
			t.Errorf("a lease without owners: another one (%v), and %d keep-alives", after != before, p.keeps.Load()-keeps)
		}
		age(d, 2*time.Second)
		r, after = lock()
		if after == before {
			t.Error("the lease of a holder was kept alive by newcomers")
		}
		give(t, d, r, driver.EndFinished)
		give(t, d, stays, driver.EndFinished)

		before = after
		p.set(func(*pb.TxnRequest) bool { return true })
		lost := ask(claim("lost"), time.Hour)
		if _, err := d.Try(t.Context(), lost); err == nil {
			t.Fatal("the reply was lost, and yet there is no error")
		}
		p.set(nil)
		age(d, 2*time.Second)
		r, after = lock()
		if after == before {
			t.Error("a lease that a late request may put a key on was kept alive by newcomers")
		}

		before = after
		age(d, 2*time.Hour) // all is over by this driver's clock, and yet etcd has it
		d.mu.Lock()
		d.sweep(time.Now())
		d.mu.Unlock()
		if _, known := d.known(r.ID()); known {
			t.Error("an owner whose time is over is remembered")
		}
		if _, after = lock(); after == before {
			t.Error("a lease that a forgotten owner is on was kept alive by newcomers")
		}
	})
}

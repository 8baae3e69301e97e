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
				if err := d.Release(t.Context(), release); err != nil {
					t.Fatal(err)
				}
			}, 1, 1},
			{"the waiter's turn", func() { grant(t, d, b) }, 1, 1},
		} {
			if all, writes := p.costs(step.f); all != step.all || writes != step.writes {
				t.Errorf("%s is %d transactions, %d of them written; want %d and %d", step.what, all, writes, step.all, step.writes)
			}
		}
	})
}

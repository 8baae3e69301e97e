// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
)

// TestSuiteOnAnEnsemble has each client at one of three servers.
func TestSuiteOnAnEnsemble(t *testing.T) {
	testserver.Variant(t, "three servers")
	_, addrs := ensemble(t) // before the other tests, which are parallel, keep the machine busy
	t.Parallel()
	suite(t, Options{}, addrs...)
}

// ensemble is three servers, and their addresses.
func ensemble(t testing.TB) (all []*testserver.Server, addrs []string) {
	t.Helper()
	all = testserver.ZooKeepers(t, 3)
	for _, s := range all {
		addrs = append(addrs, s.Addr())
	}
	return all, addrs
}

// A lease and a place stand while the leader is killed, or the server that a client is at stands still, and no holder is told of a loss.
func TestServersGo(t *testing.T) {
	all, addrs := ensemble(t)
	w := &world{TB: t, ctx: t.Context()}
	open := func() *Driver {
		c := Connect(addrs, &ConnOptions{SessionTimeout: 5 * time.Minute})
		t.Cleanup(func() { _ = c.Close() })
		return New(c, nil)
	}
	holds, waits := open(), open()
	tells := told(holds)
	stands := func(a, b contend.Owner) {
		t.Helper()
		w.eventually("a server leads", func() bool { // how long an election takes is not the client's
			return slices.ContainsFunc(all, func(s *testserver.Server) bool {
				ctx, cancel := context.WithTimeout(w.ctx, time.Second) // one may stand still
				defer cancel()
				mode, _ := s.ZooKeeperMode(ctx)
				return mode == "leader"
			})
		})
		start, lost := time.Now(), stall.Watch(t)
		w.eventually("the lease is renewed", func() bool { return w.renew(holds, a).Err == nil })
		w.eventually("the place stands", func() bool {
			res, err := contend.Try(w.ctx, waits, queued(b))
			return err == nil && !res.Granted && res.Ahead == 0 && res.Holder.Owner == a.Owner
		})
		if took := time.Since(start); took > 10*time.Second+lost() {
			t.Errorf("they stand %v after the election, of which the machine lost %v", took, lost())
		}
	}
	var fence uint64
	for _, fault := range []string{killsLeader, stopsServer, "a follower is killed"} {
		a, b := ask("k"), ask("k")
		rises := w.grant(holds, a).Fence
		if rises <= fence {
			t.Fatalf("%s: the fence is %d after %d", fault, rises, fence)
		}
		hints := w.hints(waits, b)
		w.refuse(waits, queued(b))
		back := breaks(t, fault, all, func() int { return at(t, addrs, holds) })
		stands(a, b)
		back()
		stands(a, b)
		w.eventually("the lease is released", func() bool {
			err := contend.Release(w.ctx, holds, a)
			return err == nil || errors.Is(err, driver.ErrNotHeld)
		})
		comes(w, hints, "hint")
		w.eventually("the waiter is granted the key", func() bool {
			res, err := contend.Try(w.ctx, waits, queued(b))
			fence = res.Fence
			return err == nil && res.Granted
		})
		if fence <= rises {
			t.Errorf("%s: the fence is %d after %d", fault, fence, rises)
		}
		w.eventually("the waiter releases it", func() bool {
			err := contend.Release(w.ctx, waits, b)
			return err == nil || errors.Is(err, driver.ErrNotHeld)
		})
	}
	select {
	case id := <-tells:
		t.Errorf("told that %v is lost", id)
	default:
	}
}

const (
	killsLeader = "the leader is killed"
	stopsServer = "a server stands still"
)

// breaks has one of an ensemble fail, and returns what brings it back.
func breaks(t *testing.T, fault string, all []*testserver.Server, at func() int) (back func()) {
	t.Helper()
	leads := testserver.ZooKeeperLeader(t, all)
	switch fault {
	case killsLeader:
		all[leads].Kill()
		return all[leads].Restart
	case stopsServer:
		s := all[at()]
		s.Stop()
		return s.Cont
	}
	follower := all[(leads+1)%3]
	follower.Kill()
	return follower.Restart
}

// at is the number of the server that a driver is connected to.
func at(t testing.TB, addrs []string, d *Driver) int {
	t.Helper()
	_, err := d.c.session(t.Context())
	must(t, err)
	i := slices.Index(addrs, d.c.zk.Server())
	if i < 0 {
		t.Fatal("it is not connected")
	}
	return i
}

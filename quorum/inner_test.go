// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// lag is a node that takes its time, or is away.
type lag struct {
	*memdriver.Store
	by   atomic.Int64 // ns
	away atomic.Bool
}

var errGone = errors.New("gone")

func (l *lag) Classify(err error) driver.Class { return driver.ClassUnreachable }
func (l *lag) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	time.Sleep(time.Duration(l.by.Load()))
	if l.away.Load() {
		return driver.Result{}, errGone
	}
	return l.Store.Vote(ctx, r)
}
func (l *lag) Record(ctx context.Context) (driver.Record, error) {
	if l.away.Load() {
		return driver.Record{}, errGone
	}
	return l.Store.Record(ctx)
}
func (l *lag) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	time.Sleep(time.Duration(l.by.Load()))
	if l.away.Load() {
		return errGone
	}
	return l.Store.Withdraw(ctx, r)
}

func lags(t *testing.T) (*Driver, []*lag) {
	var nodes []driver.Node
	var ls []*lag
	for range 3 {
		s := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: 30 * time.Second})
		rec, _ := s.Record(t.Context())
		_ = s.Admit(t.Context(), rec, 30*time.Second)
		l := &lag{Store: s}
		l.by.Store(int64(time.Millisecond))
		ls = append(ls, l)
		nodes = append(nodes, l)
	}
	d := New(nodes, nil)
	t.Cleanup(func() { d.Close() })
	return d, ls
}

func TestOwnersDoNotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ls := lags(t)
		for i := range 4000 {
			r := contend.Owner{Key: "k", Owner: rand.Text(), Label: "{}", TTL: 30 * time.Second}
			res, err := contend.Try(t.Context(), d, r)
			if err != nil || !res.Granted {
				t.Fatal(res, err)
			}
			if i == 0 { // a node that is not the queue's is a bit slower
				for j, n := range d.nodes {
					if n != d.queue.Load() {
						ls[j].by.Store(int64(2 * time.Millisecond))
						break
					}
				}
			}
			r.Settled = true
			if err := contend.Release(t.Context(), d, r); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if n := d.live(); n > 100 {
			t.Errorf("%d owners stay", n)
		}
	})
}

func TestCleanUpsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ls := lags(t)
		for _, l := range ls {
			l.away.Store(true)
		}
		for range 2000 { // over 20 minutes, far above TTL and patience
			r := contend.Owner{Key: "k", Owner: rand.Text(), Label: "{}", TTL: 30 * time.Second}
			if _, err := contend.Try(t.Context(), d, r); err == nil {
				t.Fatal()
			}
			_ = contend.Release(t.Context(), d, r) // as hasp does after an error
			time.Sleep(600 * time.Millisecond)
		}
		d.nodes[0].mu.Lock()
		defer d.nodes[0].mu.Unlock()
		if n := len(d.nodes[0].cleanups.all); n > 200 {
			t.Errorf("%d clean-ups stay that are over", n)
		}
	})
}

// After an error the reserved vote of the queue node is withdrawn, and not said to be
// the owner's.
func TestReservedVoteAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ls := lags(t)
		w := contend.Owner{Key: "w", Owner: rand.Text(), Label: "{}", TTL: 30 * time.Second, Patience: 10 * time.Second}
		if res, err := contend.Try(t.Context(), d, w); err != nil || !res.Granted {
			t.Fatal(res, err)
		}
		for i, n := range d.nodes {
			if n != d.queue.Load() {
				ls[i].Hold("k", 30*time.Second, driver.Label{})
			}
		}
		r := contend.Owner{Key: "k", Owner: rand.Text(), Label: "{}", TTL: 30 * time.Second, Patience: 10 * time.Second, Queue: true}
		if res, err := contend.Try(t.Context(), d, r); err != nil || res.Granted {
			t.Fatalf("%+v, %v: two of three nodes are held by another", res, err)
		}
		o := d.owners.get(r.Claim())
		for i, n := range d.nodes {
			if n != d.queue.Load() {
				ls[i].away.Store(true)
			}
		}
		if _, err := contend.Try(t.Context(), d, r); err == nil {
			t.Fatal("no error, though two of three nodes are away")
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if at, reserved := o.Place(); reserved && !o.Has(at) {
			t.Error("the queue node's vote is said to be ours, and was withdrawn")
		}
	})
}

// A node that comes back while calls are given up all the time is soon in service.
func TestCleanUpEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ls := lags(t)
		r := contend.Owner{Key: "w", Owner: rand.Text(), Label: "{}", TTL: 30 * time.Second}
		if res, err := contend.Try(t.Context(), d, r); err != nil || !res.Granted {
			t.Fatal(res, err)
		}
		n := d.nodes[0]
		ls[0].away.Store(true)
		n.leave(errGone)
		time.Sleep(time.Second)
		ls[0].away.Store(false)
		begun := time.Now()
		for i := 0; i < 5000 && !n.serving(); i++ { // 1000 calls a second whose contexts ended
			x := contend.Owner{Key: "x", Owner: rand.Text(), Label: "{}", TTL: 30 * time.Second}
			ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
			_, _ = contend.Try(ctx, d, x)
			cancel()
			go func() { _ = contend.Release(context.Background(), d, x) }()
			time.Sleep(time.Millisecond)
		}
		t.Log("out for", time.Since(begun))
		if time.Since(begun) > 2*time.Second {
			t.Error("it does not come back into service")
		}
		time.Sleep(time.Minute)
	})
}

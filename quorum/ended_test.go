// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// renews is a node of which a test decides when it renews.
type renews struct {
	driver.Node
	calls  atomic.Int64
	before func()
}

func (n *renews) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	n.calls.Add(1)
	if n.before != nil {
		n.before()
	}
	n.Node.Renew(context.WithoutCancel(ctx), rs, done)
}

// watched puts a renews in front of each node.
func watched(d *Driver) []*renews {
	var all []*renews
	for _, n := range d.nodes {
		r := &renews{Node: n.drv}
		n.drv = r
		all = append(all, r)
	}
	return all
}

// With a context that has ended nothing is asked, and nothing is claimed.
func TestRenewAfterTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		held, none := asks("k"), asks("none")
		granted(t, d, held)
		for _, n := range nodes[1:] { // so that a waiter has the vote of the queue node only
			n.Hold("gate", ruleTTL, driver.Label{})
		}
		gate, place := asks("gate"), asks("k")
		gate.Queue, place.Queue = true, true
		refused(t, d, gate)
		refused(t, d, place)
		synctest.Wait()
		all := watched(d)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rs := []contend.Owner{held, none, gate, place}
		told := 0
		var mu sync.Mutex
		contend.Renew(ctx, d, rs, func(i int, r driver.Renewal) {
			mu.Lock()
			defer mu.Unlock()
			told++
			if !errors.Is(r.Err, context.Canceled) {
				t.Errorf("request %d: %v, want that the context has ended", i, r.Err)
			}
		})
		synctest.Wait()
		if told != len(rs) {
			t.Errorf("%d of %d outcomes", told, len(rs))
		}
		for i, n := range all {
			if calls := n.calls.Load(); calls != 0 {
				t.Errorf("node %d was asked %d times", i, calls)
			}
		}
	})
}

// What is not decided when the context ends is not known, whatever the answers
// that came, and that come later.
func TestRenewWhileTheContextEnds(t *testing.T) {
	for name, answers := range map[string]int{"a majority, and not the queue node": 2, "one node": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := spies(t, 3)
				held, none := asks("k"), asks("none")
				granted(t, d, held)
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				goOn := make(chan struct{})
				for _, n := range watched(d)[:3-answers] {
					n.before = func() { <-goOn }
				}
				go func() {
					synctest.Wait() // the others have answered
					cancel()
				}()
				var returned atomic.Bool
				told := map[int]error{}
				var mu sync.Mutex
				contend.Renew(ctx, d, []contend.Owner{held, none}, func(i int, r driver.Renewal) {
					mu.Lock()
					defer mu.Unlock()
					if returned.Load() {
						t.Error("an outcome is told after Renew returned")
					}
					if _, twice := told[i]; twice {
						t.Errorf("request %d has two outcomes", i)
					}
					told[i] = r.Err
				})
				returned.Store(true)
				close(goOn)
				synctest.Wait()
				if err := told[0]; err == nil || errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("the lease: %v, want that it is not known", err)
				}
				if err := told[1]; err == nil || answers == 1 && errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("the owner of nothing: %v", err)
				}
			})
		})
	}
}

// Neither Try nor Release begins with a context that has ended, or an answer could
// be there before anybody looked at the context.
func TestNothingBeginsAfterTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := asks("k")
		if res, err := contend.Try(ctx, d, r); !errors.Is(err, context.Canceled) {
			t.Errorf("Try: %+v, %v", res, err)
		}
		if err := contend.Release(ctx, d, r); !errors.Is(err, context.Canceled) {
			t.Errorf("Release: %v", err)
		}
		synctest.Wait()
		for i, n := range nodes {
			n.mu.Lock()
			last := n.releases[len(n.releases)-1]
			n.mu.Unlock()
			if len(n.asked("k")) > 0 || last.Key == "k" {
				t.Errorf("node %d was asked", i)
			}
		}
	})
}

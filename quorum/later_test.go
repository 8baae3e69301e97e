// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// A Try of an earlier round is still under way on a node that voted in a later one.
func TestReleaseLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := voting(t, 3, memdriver.NodeOptions{Now: func() time.Time { return time.Now().Add(time.Second) }})
		d, ts := taps(t, stores)
		for range 2 {
			w := ask("warm")
			mustTry(t, d, w)
			_ = contend.Release(t.Context(), d, w)
		}
		free := stores[0].Hold("k", nodeMaxTTL, driver.Label{})
		x := ask("k")
		x.Queue = true
		if res := mustTry(t, d, x); res.Granted {
			t.Fatal("granted")
		}
		time.Sleep(100 * time.Millisecond)
		stores[0].Hold("other", time.Second, driver.Label{})() // its fences go on
		first := true
		ts[1].hook(func() {
			ts[1].try = func(ctx context.Context, r driver.VoteRequest) error {
				ts[1].mu.Lock()
				wait := first
				first = false
				ts[1].mu.Unlock()
				if wait {
					time.Sleep(300 * time.Millisecond)
				}
				return nil
			}
		})
		free()
		go func() { // the node is only busy
			for range 100 {
				time.Sleep(5 * time.Millisecond)
				o := ask("o")
				o.Settled = true
				_, _ = contend.Try(t.Context(), d, o)
				_ = contend.Release(t.Context(), d, o)
			}
		}()
		if res := mustTry(t, d, x); !res.Granted {
			t.Fatalf("%+v", res)
		}
		x.Settled = true
		if err := contend.Release(t.Context(), d, x); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got := holdsOn(t, stores, "k"); got[0]+got[1]+got[2] != "" {
			t.Errorf("votes 5 s after Release: %q", got)
		}
	})
}

// A waiter's give-back that is lost: it stands in the queue, asleep, with votes.
func TestWaiterKeepsVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := voting(t, 3, memdriver.NodeOptions{})
		d, ts := taps(t, stores)
		d2, _ := taps(t, stores)
		head := ask("k")
		mustTry(t, d2, ask("warm"))
		mustTry(t, d, ask("warm2"))
		time.Sleep(time.Second)
		free := stores[0].Hold("k", nodeMaxTTL, driver.Label{})
		for _, i := range []int{1, 2} { // one lost packet each
			lost := false
			ts[i].hook(func() {
				ts[i].release = func(ctx context.Context, r driver.WithdrawRequest) error {
					ts[i].mu.Lock()
					first := !lost
					lost = true
					ts[i].mu.Unlock()
					if first {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}
			})
		}
		head.Queue = true
		first := mustTry(t, d2, head) // first in the queue
		x := ask("k")
		x.Queue = true
		time.Sleep(time.Millisecond)
		res0 := mustTry(t, d, x)
		t.Log(res0, holdsOn(t, stores, "k"), x.Owner, head.Owner)
		if res0.Granted || first.Granted {
			t.Fatal("granted")
		}
		time.Sleep(time.Second)
		time.Sleep(time.Second)
		free()
		t.Log(holdsOn(t, stores, "k"))
		if res := mustTry(t, d2, head); !res.Granted {
			t.Errorf("the key is free, and its next is refused a second later: %+v", res)
		}
	})
}

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
	"github.com/hasplock/hasp/quorum"
)

// Who says that nodes may take their time is not told that they are silent, nor
// that one which was away stays away, by calls that have limits of their own.
func TestNodeTimeoutIsForAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		var links []*link
		var nodes []driver.Node
		for _, s := range stores {
			l := &link{Store: s}
			links, nodes = append(links, l), append(nodes, l)
		}
		d := quorum.New(nodes, &quorum.Options{NodeTimeout: 3 * time.Second})
		defer d.Close()
		first := ask("k")
		mustTry(t, d, first)
		time.Sleep(time.Second)
		links[0].fail(errAway)
		mustTry(t, d, ask("other")) // it is out of service
		links[0].fail(nil)
		for _, l := range links {
			l.delay(2 * time.Second)
		}
		if info, err := d.Inspect(t.Context(), "k"); err != nil || info.Holder.Owner != first.Owner {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		time.Sleep(10 * time.Second)
		last := ask("last")
		mustTry(t, d, last)
		time.Sleep(5 * time.Second)
		if n := votes(t, stores, "last", last.Owner); n != 3 {
			t.Errorf("%d of 3 nodes vote, and all answer in time", n)
		}
	})
}

// A subscription is such a call, too.
func TestNodeTimeoutIsForSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := voting(t, 3, memdriver.NodeOptions{})
		var nodes []driver.Node
		for _, s := range stores {
			nodes = append(nodes, &tap{Store: s})
		}
		d := quorum.New(nodes, &quorum.Options{NodeTimeout: 3 * time.Second})
		defer d.Close()
		watchHook = func(ctx context.Context, _ *tap) error {
			select {
			case <-time.After(2 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		defer func() { watchHook = nil }()
		held, waits := ask("k"), ask("k")
		mustTry(t, d, held)
		hints, err := contend.Watch(t.Context(), d, waits)
		if err != nil {
			t.Fatal(err)
		}
		waits.Queue = true
		if res, err := contend.Try(t.Context(), d, waits); err != nil || res.Granted {
			t.Fatalf("Try: %+v, %v", res, err)
		}
		if err := contend.Release(t.Context(), d, held); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-hints:
		default:
			t.Error("the waiter is not told, though its node confirmed in time that it listens")
		}
	})
}

// Whoever waits for a subscription is not in the queue yet: a node that confirms none is
// deaf after three seconds, however long nodes may take, and its waiters poll.
func TestSubscriptionThatIsNeverConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Node
		for _, s := range voting(t, 3, memdriver.NodeOptions{}) {
			nodes = append(nodes, &tap{Store: s})
		}
		d := quorum.New(nodes, &quorum.Options{NodeTimeout: time.Minute})
		defer d.Close()
		watchHook = func(ctx context.Context, _ *tap) error {
			<-ctx.Done()
			return ctx.Err()
		}
		defer func() { watchHook = nil }()
		begun := time.Now()
		if _, err := contend.Watch(t.Context(), d, ask("k")); err != nil {
			t.Errorf("Watch: %v, want a channel", err)
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// The first Watch asks the nodes who they are, for as long as its caller waits.
func TestFirstWatchEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var links []*link
		var nodes []driver.Node
		for _, s := range newStores(t, 3) {
			l := &link{Store: s}
			links, nodes = append(links, l), append(nodes, l)
		}
		d := quorum.New(nodes, &quorum.Options{NodeTimeout: time.Minute})
		defer d.Close()
		links[1].stop()
		defer links[1].cont()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := contend.Watch(ctx, d, ask("k")); err == nil {
			t.Error("no error, and its caller left")
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

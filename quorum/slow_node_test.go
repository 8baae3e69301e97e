// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/quorum"
)

// Who says that nodes may take their time is not told that they are silent, nor
// that one which was away stays away, by calls that have limits of their own.
func TestNodeTimeoutIsForAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		var links []*link
		var nodes []driver.Driver
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
		stores := lined(t, 3, memdriver.NodeOptions{})
		var nodes []driver.Driver
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
		hints, err := d.Watch(t.Context(), waits)
		if err != nil {
			t.Fatal(err)
		}
		waits.Queue = true
		if res, err := d.Try(t.Context(), waits); err != nil || res.Granted {
			t.Fatalf("Try: %+v, %v", res, err)
		}
		if err := d.Release(t.Context(), held); err != nil {
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

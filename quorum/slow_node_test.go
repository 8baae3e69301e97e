// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
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

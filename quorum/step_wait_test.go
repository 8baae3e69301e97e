// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/memdriver"
)

// A node whose fences are far from the others' keeps no waiter from the key, also when the queue is there.
func TestWaiterBesideANodeOutOfStep(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		for i := range 6 {
			odd, comesBack := i%3, i >= 3
			synctest.Test(t, func(t *testing.T) {
				stores := newStores(t, 3)
				off := ahead
				stores[odd] = memdriver.NewNode(memdriver.NodeOptions{MaxTTL: nodeMaxTTL, Now: func() time.Time { return time.Now().Add(off) }})
				admit(t, stores[odd])
				if comesBack {
					off = 0 // its fences stay
				}
				a, _ := client(t, stores)
				b, _ := client(t, stores)
				for range 3 {
					held := mustLock(t, a, "k")
					got := make(chan *hasp.Lease)
					go func() { got <- mustLock(t, b, "k") }()
					time.Sleep(5 * time.Second)
					begun := time.Now()
					if err := held.Release(); err != nil {
						t.Error(err)
					}
					lease := <-got
					if took := time.Since(begun); took > time.Second {
						t.Errorf("node %d ahead by %v: the waiter has the key %v after its release", odd, ahead, took)
					}
					if err := lease.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

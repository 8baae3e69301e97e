// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package verify

import (
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
)

// Failure case 2. Rule: a process that was stopped for longer than the TTL finds the loss
// by its first check of the lease, and its fence is smaller than the next holder's.
func TestStoppedHolderFindsTheLoss(t *testing.T) {
	s := testserver.Redis(t)
	if _, err := Stopped(t, s.Addr(), "k", 3*time.Second); err != nil {
		t.Error(err)
	}
}

// Failure case 14. Rule: when a holder is killed, the waiter has the key
// within the TTL plus a little, with no other traffic on it.
func TestKilledHolder(t *testing.T) {
	const ttl = 4 * time.Second
	s := testserver.Redis(t)
	h, err := StartHolder(t, s.Addr(), "k", ttl)
	if err != nil {
		t.Fatal(err)
	}
	events := newFeed()
	got := lockAsync(t.Context(), Locks(t, s.Addr(), events.observe).Mutex("k", &hasp.LockOptions{TTL: ttl}))
	events.waits(t)
	h.Kill()
	dead, lost := time.Now(), stall.Watch(t)
	lease, at := awaitLease(t, got)
	t.Logf("killed with -9; the waiter had the key %v later (TTL %v)", at.Sub(dead), ttl)
	if took := at.Sub(dead); took > ttl+little+lost() {
		t.Errorf("the waiter had the key %v after the holder's death, want %v", took, ttl)
	}
	if lease.Fence() <= h.Fence {
		t.Errorf("fence %d after %d", lease.Fence(), h.Fence)
	}
	release(t, lease)
}

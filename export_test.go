// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "github.com/hasplock/hasp/internal/clock"

// Moment is how long a Lock that gave up waits for the store.
const Moment = moment

// SetClock gives a client another clock, before its first use.
func SetClock(c *Client, now clock.Clock) { c.core.now = now }

// Contexts returns how many contexts a lease keeps track of.
func Contexts(l *Lease) int {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return len(l.h.signals.ctxs)
}

// RenewerRuns says whether a client's goroutine is there.
func RenewerRuns(c *Client) bool { return c.core.renewer.Running() }

// Want tells a client's leases of a key that a waiter is there, as a renewal does, or an engine that hears of it earlier.
func Want(c *Client, key string) {
	for _, m := range c.core.renewer.Members() {
		held, ok := m.(interface{ holds() *hold })
		if !ok || held.holds().req.Key != key {
			continue
		}
		h := held.holds()
		h.mu.Lock()
		tell := h.signals.told(h.life.Want(true))
		h.mu.Unlock()
		if tell != nil {
			tell()
		}
	}
}

// Busy returns how many keys a client expects to wait for.
func Busy(c *Client) int { return int(c.core.busy.n.Load()) }

// MaxBusy bounds Busy.
const MaxBusy = maxBusy

// MaxCleanups bounds PendingReleases.
const MaxCleanups = maxCleanups

// PendingReleases returns how many releases a client has not delivered.
func PendingReleases(c *Client) int {
	c.core.cleanups.mu.Lock()
	defer c.core.cleanups.mu.Unlock()
	return len(c.core.cleanups.pending)
}

// OnceKeys are the keys of an occurrence.
var OnceKeys = onceKeys

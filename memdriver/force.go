// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Hold makes somebody else the holder of a key for ttl, whoever has it: a
// test's way to contention, and to a lease that is taken by another. All holders
// before it have lost the key, and are told at their next renewal or Release;
// those in the queue go on waiting. label is shown to them; see driver.Label.
// release gives the key back, to the next in the queue; calling it late, or twice,
// is harmless. Hold works on a store that is unreachable to its clients.
func (s *Store) Hold(key string, ttl time.Duration, label driver.Label) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := driver.Claim{Key: key, Owner: rand.Text(), Label: label.Encode()}
	now := s.now()
	e := s.settled(key, now)
	e.holders = nil
	s.grant(e, driver.VoteRequest{TryRequest: driver.TryRequest{Claim: c, TTL: ttl}}, now)
	return func() { s.end(key, func(h *place) bool { return h.id == c.ID() }) }
}

// Lose makes the store forget who holds a key, as a store that was restarted
// without its data does: the lease of each holder is lost, which it is told at
// its next renewal or Release, and the key goes to the next in the queue. Nothing
// happens when nobody holds the key.
func (s *Store) Lose(key string) {
	s.end(key, func(*place) bool { return true })
}

// end takes the key away from those holders.
func (s *Store) end(key string, of func(*place) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e := s.settled(key, now)
	defer s.forget(e, now)
	for _, h := range slices.Clone(e.holders) {
		if of(h) {
			e.vacate(h, now, driver.Finished)
		}
	}
	s.handOn(e, now)
}

// SetUnreachable cuts the store off from its clients, or connects it again:
// while it is cut off every request fails with an error of class
// driver.ClassUnreachable, and leases and places run out as they do in a store that
// nobody can reach.
func (s *Store) SetUnreachable(unreachable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreachable = unreachable
}

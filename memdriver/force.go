// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Hold makes a new owner the holder of a key for ttl, even if another holds it, so that a
// test can have contention, or a lease that is lost to another. The previous holders
// have lost the key, which they learn at their next renewal or Release; waiters go on
// waiting, and are shown label. release hands the key to the next waiter; calling it
// late, or twice, is harmless. Hold works even while the store is unreachable to its
// clients, of which none is handed the key until they reach it again.
func (s *Store) Hold(key string, ttl time.Duration, label driver.Label) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := driver.Claim{Key: key, Owner: rand.Text(), Label: label.Encode()}
	now := s.now()
	e := s.settled(key, now)
	e.holders = nil
	s.grant(e, &voting.VoteRequest{TryRequest: driver.TryRequest{Claim: c, TTL: ttl}}, now)
	return func() { s.end(key, func(h *place) bool { return h.id == c.ID() }) }
}

// Lose makes the store lose the leases on a key, as a store that is restarted without
// its data does. Each holder learns it at its next renewal or Release, and the key
// goes to the next waiter. Nothing happens when the key is free.
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
			e.vacate(h, now, driver.EndFinished)
		}
	}
	s.handOn(e, now)
}

// SetUnreachable cuts the store off from its clients, or reconnects it. While it is
// cut off, every request fails with an error of class driver.ClassUnreachable,
// leases and places expire as they would in any store that no client can reach, and
// no key is handed over. Every waiter gets a hint when the store is reconnected.
func (s *Store) SetUnreachable(unreachable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreachable && !unreachable {
		defer s.hintAll()
	}
	s.unreachable = unreachable
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"fmt"
	"time"
)

// Leftovers names all that the next sweep does not forget.
func (s *Store) Leftovers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepAt = 0
	s.sweep(time.Now())
	var left []string
	for key := range s.keys {
		left = append(left, "key "+key)
	}
	for id := range s.tombs {
		left = append(left, fmt.Sprintf("tombstone %q", id))
	}
	for id := range s.watchers {
		left = append(left, fmt.Sprintf("watcher %q", id))
	}
	return left
}

// Size says how much the store keeps, needed or not.
func (s *Store) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys) + len(s.tombs)
}

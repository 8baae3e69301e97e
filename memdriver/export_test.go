// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"fmt"
	"time"
)

// Leftovers names all that the store will not forget by itself.
func (s *Store) Leftovers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	later := NewNode(s.options)
	later.data = s.data.clone()
	later.sweepAt = 0
	later.sweep(s.now().Add(1_000_000 * time.Hour))
	var left []string
	for key := range later.keys {
		left = append(left, "key "+key)
	}
	for id := range later.tombs {
		left = append(left, fmt.Sprintf("tombstone %q", id))
	}
	for id := range s.watchers {
		left = append(left, fmt.Sprintf("watcher %q", id))
	}
	return left
}

// Sweep forgets what may be forgotten now.
func (s *Store) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepAt = 0
	s.sweep(s.now())
}

// Knows says whether the store keeps anything of a key.
func (s *Store) Knows(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key] != nil
}

// Size says how much the store keeps, needed or not.
func (s *Store) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys) + len(s.tombs)
}

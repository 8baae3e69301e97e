// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import "sync"

// LosesLarge returns a hook that is a link with a smaller MTU than it says: once a chunk to the server has more than so many bytes,
// nothing that the connection sends arrives any more.
func LosesLarge(most int) func(Chunk) (drop bool) {
	var mu sync.Mutex
	stuck := map[int]bool{}
	return func(c Chunk) bool {
		mu.Lock()
		defer mu.Unlock()
		if c.Dir == Up && len(c.Data) > most {
			stuck[c.Conn] = true
		}
		return c.Dir == Up && stuck[c.Conn]
	}
}

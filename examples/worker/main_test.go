// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/memdriver"
)

// A worker ends its part when another waits for its turn, and when the lock is lost.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, begun := memdriver.New(), make(chan uint64)
		work := func() <-chan error {
			locks, _ := hasp.New(store, nil)
			ended := make(chan error, 1)
			go func() {
				defer locks.Close()
				ended <- turn(t.Context(), locks.Mutex("index", nil), func(ctx context.Context, fence uint64) error {
					begun <- fence
					<-ctx.Done()
					return ctx.Err()
				})
			}()
			return ended
		}
		first, fence := work(), <-begun // it works until the second waits
		second, next := work(), <-begun
		store.Lose("index")
		if a, b := <-first, <-second; a != nil || !errors.Is(b, hasp.ErrLost) || next <= fence {
			t.Errorf("the turns with fences %d and %d end with %v and %v", fence, next, a, b)
		}
	})
}

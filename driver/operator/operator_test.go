// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver/operator"
)

func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for took, want := range map[time.Duration]time.Duration{0: 0, time.Second: 2 * time.Second, time.Minute: 5 * time.Second} {
			began := time.Now()
			if err := operator.Rest(t.Context(), took, 5*time.Second); err != nil || time.Since(began) != want {
				t.Errorf("after %v it rested for %v (%v), want %v", took, time.Since(began), err, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := operator.Rest(ctx, time.Second, time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("a rest whose context has ended: %v", err)
		}
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// A person who reads of a loss reads why: that is what they will look into.
func TestWhyLost(t *testing.T) {
	trouble := errors.New("trouble")
	for _, c := range []struct {
		name string
		said error
		hold *hold
		want string
	}{
		{"the store says so", ErrNotHeld, &hold{term: term{opts: &LockOptions{}}}, "the store says that this owner no longer holds the key"},
		{"MaxHold", nil, &hold{term: term{used: true, opts: &LockOptions{MaxHold: 1}}}, "held for its MaxHold of 1ns"},
		{"dropped", nil, &hold{term: term{opts: &LockOptions{}}, handles: handles{forgotten: true}}, "dropped without Release"},
		{"NoRenew", nil, &hold{term: term{opts: &LockOptions{NoRenew: true}}}, "its TTL of 7s is over"},
		{"an error", nil, &hold{term: term{opts: &LockOptions{}, lastErr: trouble}}, "last error: trouble"},
		{"no answer", nil, &hold{term: term{opts: &LockOptions{}, renewing: true}}, "the store has not answered"},
		{"neither", nil, &hold{term: term{opts: &LockOptions{}}}, "by the clock of this machine"},
	} {
		h := c.hold
		h.c, h.req = &core{now: func() clock.Instant { return at(time.Hour) }}, driver.RenewRequest{TTL: 7 * time.Second}
		err := h.whyLost(c.said)
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if errors.Is(err, trouble) != (h.term.lastErr != nil) {
			t.Errorf("%s: the last error: %v", c.name, err)
		}
	}
}

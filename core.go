// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/gate"
	"github.com/hasplock/hasp/internal/keepalive"
)

// core is what all parts of a client share: its store, and what is under way.
type core struct {
	drv         driver.Driver
	traits      driver.Traits
	observe     func(Event)
	recordTaken bool
	maxSilence  time.Duration
	maxRefused  time.Duration
	heard       atomic.Bool // the store has given a good answer
	now         clock.Clock
	waits       *admission.Waits
	labels      labels
	calls       *gate.Gate
	renewer     *keepalive.Loop
	cleanups    *cleanups
	cohorts     cohorts
	busy        busy
}

func newCore(d driver.Driver, o *Options) *core {
	c := &core{drv: d, traits: d.Traits(), observe: o.Observe, recordTaken: o.RecordTaken, maxSilence: o.MaxSilence,
		maxRefused: cmp.Or(o.MaxRefused, defaultRefused), now: clock.Cheap(), waits: admission.New(o.StateDir, o.StateFailed), calls: gate.New()}
	c.renewer = keepalive.New(d.Renew, func() clock.Instant { return c.now() }, c.calls)
	c.cleanups = &cleanups{c: c}
	return c
}

func (c *core) emit(e Event) {
	if c.observe != nil {
		e.Engine = c.traits.Engine
		if e.Context == nil {
			e.Context = context.Background()
		}
		c.observe(e)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
)

var _ driver.Async = (*Driver)(nil)

// StartTry begins a Try; see [driver.Async].
func (d *Driver) StartTry(ctx context.Context, r driver.Request, done func(driver.Result, error)) {
	c, told, refused, err := d.prepare(r)
	if c == nil {
		done(refused, err)
		return
	}
	begun := time.Now()
	d.send.begin(ctx, c, func(c *call) {
		if c.err != nil {
			done(driver.Result{}, c.err)
			return
		}
		done(d.tried(r, c, told, begun))
	})
}

// StartRelease begins a Release; see [driver.Async].
func (d *Driver) StartRelease(ctx context.Context, r driver.Request, done func(error)) {
	if err := d.check(r); err != nil {
		done(err)
		return
	}
	d.send.begin(ctx, d.releaseCall(r, false), func(c *call) {
		if c.err != nil {
			done(c.err)
			return
		}
		done(d.released(c.reply))
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
)

// giveBack releases, in the background, what an owner may have in the store.
// It asks until the store answered, or has forgotten the owner by itself.
func (c *Client) giveBack(req driver.Request) {
	c.enterLate()
	go func() {
		defer c.leave()
		limit := min(max(req.TTL, req.Patience), giveBackLimit) + tryLimit
		_ = c.release(c.base, limit, req) // nobody is left to be told; the TTL ends what stays
	}()
}

var errUntold = errors.New("the store could not be told")

// release asks until ctx ends or limit is over: errUntold. It needs no live
// context of a caller: c.base ends only when Close is over.
func (c *Client) release(ctx context.Context, limit time.Duration, req driver.Request) error {
	began := time.Now()
	err := c.releaseOnce(ctx, limit, req)
	if err == nil || errors.Is(err, ErrNotHeld) || !c.worthAsking(err) {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(limit))
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, max(time.Second, time.Since(began)/10)) {
		timer := time.NewTimer(jitter(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w, and keeps the key for its TTL of %v: %w", errUntold, req.TTL, err)
		}
		switch err = c.releaseOnce(ctx, limit, req); {
		case err == nil || errors.Is(err, ErrNotHeld):
			return nil // perhaps by an earlier request whose reply was lost
		case !c.worthAsking(err):
			return err
		}
	}
}

func (c *Client) releaseOnce(ctx context.Context, limit time.Duration, req driver.Request) error {
	ctx, cancel := context.WithTimeout(ctx, min(limit, releaseLimit/3))
	defer cancel()
	return c.drv.Release(ctx, req)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
)

const (
	wary = 10 * time.Second // how long at most a late request may be under way

	lookAfter = 100 * time.Millisecond // the first in line, when nobody will tell it
	pollStep  = 50 * time.Millisecond  // without hints: this much longer for each place before
	pollMax   = time.Second            // but no longer than this
)

// Try asks once for r.Key; see [driver.Driver].
func (d *Driver) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	if err := d.check(r); err != nil {
		return driver.Result{}, err
	}
	if r.Fence != 0 {
		return driver.Result{}, fmt.Errorf("redis: a proposed fence: %w", driver.ErrUnsupported)
	}
	state, place, told := "h", "", false
	if d.muted.Load() {
		state = "m"
	}
	if r.Queue {
		place, told = d.place(r)
	}
	n := d.names(r.Key)
	begun := time.Now()
	reply, err := d.send.do(ctx, tryScript,
		[]string{n.lock, n.grant, n.line, n.places, n.mark, gone(n.lock, r.Owner)},
		value(r), millis(r.TTL), lingering(r.TTL), state, place, millis(r.Patience))
	if err != nil {
		return driver.Result{}, err
	}
	d.delay.sample(time.Since(begun))
	a, err := parseTry(reply)
	if err != nil {
		return driver.Result{}, err
	}
	switch {
	case a.kind != "":
		return driver.Result{}, &TypeError{Key: n.lock, Type: a.kind}
	case a.granted:
		return driver.Result{Granted: true, Fence: a.fence, TTL: max(r.TTL, a.lasts), Abandoned: a.abandoned}, nil
	}
	return a.refusal(told), nil
}

// place describes r's place in line: patience, claim, mode and inbox as
// line.lua wants them. told says that hints will reach r.
func (d *Driver) place(r driver.Request) (text string, told bool) {
	claim := d.delay.claim(r.TTL)
	mode, inbox := d.boxes.mode(r)
	if mode == modePoll {
		claim = min(claim+pollMax, maxClaim)
		inbox = sidecars + "inbox:" + d.id
	}
	return fmt.Sprintf("%d %d %c %s", millis(r.Patience), millis(claim), mode, inbox), mode != modePoll
}

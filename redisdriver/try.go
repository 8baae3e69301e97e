// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"fmt"
	"strings"
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
	c, told := d.tryCall(r)
	begun := time.Now()
	reply, err := d.send.do(ctx, c)
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
		return driver.Result{}, &TypeError{Key: d.prefix + r.Key, Type: a.kind}
	case a.granted:
		res := driver.Result{Granted: true, Fence: a.fence, TTL: max(r.TTL, a.lasts), Abandoned: a.abandoned}
		if a.lasts == 0 { // not granted before
			res.Fences = r.Fences
		}
		return res, nil
	}
	return a.refusal(told), nil
}

// tryCall is a Try as the batch script wants it. told says that hints will
// reach r.
func (d *Driver) tryCall(r driver.Request) (c *call, told bool) {
	n := d.names(r.Key)
	c = &call{script: batchScript, mark: n.mark, keys: []any{n.lock, n.grant, n.line, n.places, n.gone(r.Owner)}}
	kind, place := "h", ""
	if d.muted.Load() {
		kind = "m"
	}
	if r.Queue {
		place, told = d.place(r)
	}
	if r.Queue || r.Fences > 1 {
		c.args = []any{strings.ToUpper(kind), value(r), millis(r.TTL), lingering(r.TTL), max(r.Fences, 1), place, millis(r.Patience)}
	} else {
		c.args = []any{kind, value(r), millis(r.TTL), lingering(r.TTL)}
	}
	return c, told
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

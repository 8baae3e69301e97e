// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

const (
	keepAbout = time.Minute // what stands beside a lock outlives it for so long

	pollStep = 50 * time.Millisecond  // without hints: this much longer for each place before
	pollMax  = time.Second            // but no longer than this
	pollDeaf = 250 * time.Millisecond // without hints and without a queue
)

// Try requests r.Key once; see [driver.Driver].
func (d *Driver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	if err := d.check(r.Claim, r.Check()); err != nil {
		return driver.Result{}, err
	}
	if d.tooLong(r.TTL) {
		return driver.Result{Why: voting.TTLTooLong, TTL: d.maxTTL}, nil
	}
	answered := d.asked(r.Claim)
	reply, err := d.send.Do(ctx, d.tryCall(r))
	if err != nil {
		return driver.Result{}, err // a hint that it followed goes on to the next, if it asks no more
	}
	answered()
	return d.tried(r, wire.NewReply(reply))
}

func (d *Driver) tryCall(r driver.TryRequest) *wire.Call {
	n, own, ttl := d.names(r.Key), fieldOf(r.Owner), wire.Millis(r.TTL)
	keep := ttl + keepAbout.Milliseconds()
	switch d.kind {
	case Fair:
		patience := ""
		if r.Queue {
			patience = strconv.FormatInt(wire.Millis(r.Patience), 10)
		}
		return &wire.Call{
			Script: fairTry, Keys: []any{n.lock, n.about(), n.queue, n.timeouts, n.waiters(), n.gone(r.Owner)},
			Args: []any{ttl, keep, own, r.Label, patience, d.publish(), n.channel},
		}
	case ReadWrite:
		how := "write"
		if r.Convert {
			how = "convert"
		} else if r.Mode == driver.Shared {
			how = "read"
		}
		return &wire.Call{
			Script: rwTry, Keys: []any{n.lock, n.about(), n.gone(r.Owner), n.timeout(own)},
			Args: []any{how, ttl, keep, own, r.Label, n.reader, d.publish(), n.channel},
		}
	case Lock, Fenced:
	}
	c := &wire.Call{
		Script: lockTry, Keys: []any{n.lock, n.about(), n.gone(r.Owner)}, Args: []any{ttl, keep, own, r.Label, max(r.Fences, 1)},
	}
	if d.kind == Fenced {
		c.Keys = append(c.Keys, n.token)
	}
	return c
}

// tried reads the answer to a Try.
func (d *Driver) tried(r driver.TryRequest, a *wire.Reply) (res driver.Result, err error) {
	switch code := wire.Next[int64](a); code {
	case 1:
		fence := wire.Next[string](a)
		res = driver.Result{Granted: true, Fences: int(wire.Next[int64](a))}
		res.TTL = max(r.TTL, wire.Span(wire.Next[int64](a)))
		res.Fence, err = strconv.ParseUint(fence, 10, 64)
		a.Bad = a.Bad || err != nil
	case 2:
		res = driver.Result{Why: driver.WhyReleased, RetryIn: pollMax}
	case -1:
		key, kind := wire.Next[string](a), wire.Next[string](a)
		if !a.Bad {
			return driver.Result{}, &wire.TypeError{Key: key, Type: kind}
		}
	case 0:
		who := wire.NewReply(wire.Next[[]any](a))
		field, about := wire.Next[string](who), wire.Next[string](who)
		left := wire.Span(wire.Next[int64](a))
		look := pollMax
		if d.kind == Fair {
			res.Ahead, look = int(wire.Next[int64](a)), wire.Span(wire.Next[int64](a))
		}
		if a.Bad = a.Bad || who.Bad; left != wire.Free {
			res.Holder, _ = d.holderOf(field, about)
			res.Left = max(left, 0)
		}
		res.RetryIn = d.retryIn(r.Claim, res.Ahead, left, look)
	default:
		a.Bad = true
	}
	if a.Bad || len(a.Fields) > 0 {
		return driver.Result{}, wire.ErrReply
	}
	return res, nil
}

// retryIn says when to try again without a hint, of a lock that lasts for left: in the queue of a fair lock, the server says when to
// look. Of the waiters here for another, the first asks every second, and the others more rarely: spin locks of Java's, and
// clients that may not PUBLISH, send no message.
func (d *Driver) retryIn(c driver.Claim, ahead int, left, look time.Duration) time.Duration {
	expiry := pollMax
	if left >= 0 {
		expiry = left + time.Millisecond
	}
	switch rank, hinted := d.rank(c); {
	case d.kind == Fair && !hinted:
		return min(expiry, pollStep*time.Duration(ahead+1), pollMax)
	case d.kind == Fair:
		return look
	case !hinted:
		return min(expiry, pollDeaf)
	default:
		return min(expiry, pollMax*time.Duration(rank+1))
	}
}

// holderOf reads a field of a lock, and what is known of it.
func (d *Driver) holderOf(field, about string) (h driver.Holder, fence uint64) {
	mode := driver.Exclusive
	if d.kind == ReadWrite && !strings.HasSuffix(field, ":write") {
		mode = driver.Shared
	}
	own := strings.TrimSuffix(field, ":write")
	owner, ok := ownerOf(own)
	if !ok {
		return driver.Holder{Foreign: true, Label: field[:min(len(field), driver.MaxLabel)], Mode: mode}, 0
	}
	h = driver.Holder{Owner: owner, Mode: mode}
	since, rest, _ := strings.Cut(about, " ")
	digits, label, ok := strings.Cut(rest, " ")
	if ms, err := strconv.ParseInt(since, 10, 64); ok && err == nil {
		h.Since, h.Label = time.UnixMilli(ms), label
		fence, _ = strconv.ParseUint(digits, 10, 64)
	}
	return h, fence
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"time"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// CountDownLatch is one of getCountDownLatch: it is open while its count is 0, which it is before one was set. It
// never expires.
//
// A latch that is not there is open, as Redisson defines it: after the server has lost its data, or after a FLUSHALL or an eviction, Wait returns
// nil although events are still to come. Where that matters, keep elsewhere what has happened, and look there after Wait.
type CountDownLatch struct{ object }

// CountDownLatch returns the latch of a name, of 1 to 512 bytes. It does no I/O. In a cluster the name must have no braces:
// Redisson's own latches have their keys in two hash slots then.
func (s *Synchronizers) CountDownLatch(name string) *CountDownLatch {
	channel := latchChannel + "{" + s.prefix + name + "}"
	return &CountDownLatch{s.object("latch", name, channel, "choose a name and a prefix without braces")}
}

func (l *CountDownLatch) step(op string, n int) *wire.Call {
	return &wire.Call{Script: latch, Keys: []any{l.key}, Args: []any{op, l.s.publish(), l.channel, n}}
}

// TrySetCount closes the latch for n events, 1 to 2^31-1, if it is open, and reports whether it did.
func (l *CountDownLatch) TrySetCount(ctx context.Context, n int) (bool, error) {
	if err := number("events", n, 1); err != nil {
		return false, err
	}
	a, err := l.do(ctx, l.step("set", n))
	return a.done, err
}

// Count returns how many events are still to come; 0: the latch is open.
func (l *CountDownLatch) Count(ctx context.Context) (int, error) {
	a, err := l.do(ctx, l.step("count", 0))
	return int(a.numbers[0]), err
}

// CountDown reports one event. The last opens the latch; on an open one it does nothing. After an error
// the event may or may not be counted.
func (l *CountDownLatch) CountDown(ctx context.Context) error {
	_, err := l.do(ctx, l.step("down", 0))
	return err
}

// Wait waits until the latch is open, or gone, see [CountDownLatch]. The error is ctx.Err() when ctx ends first. As in Redisson, it may miss that a latch
// was open which was closed again at once.
func (l *CountDownLatch) Wait(ctx context.Context) error {
	w := &wait{object: &l.object, try: func(ctx context.Context) (bool, time.Duration, error) {
		n, err := l.Count(ctx)
		return n == 0 && err == nil, 0, err
	}}
	return w.run(ctx)
}

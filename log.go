// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"log/slog"

	"github.com/hasplock/hasp/driver"
)

// LogTo returns a function for Options.Observe that logs every event to logger;
// nil means slog.Default. Like logger, it may be used by many goroutines and
// clients.
//
// Losses are errors. What needs attention is a warning: a renewal or release
// that failed, trouble with the store while waiting or instead of a lease, a lease
// that was dropped. All else happens in normal use, and is for debugging.
//
// The attributes are event (Event.Kind as a word), engine, key and owner, and those
// of fence, mode, slot, holder, ahead, left, waited, held, age, handoff, taken and err
// that the event has. The handler is given Event.Context. Keys are escaped as in a Go string, so that no handler prints
// what a terminal might act on.
func LogTo(logger *slog.Logger) func(Event) {
	if logger == nil {
		logger = slog.Default()
	}
	return func(e Event) {
		if e.Context == nil { // of no client
			e.Context = context.Background()
		}
		level, text := e.describe()
		if logger.Enabled(e.Context, level) {
			logger.LogAttrs(e.Context, level, text, e.attrs()...)
		}
	}
}

// describe returns how much an event matters, and what to say of it.
func (e *Event) describe() (slog.Level, string) {
	level := slog.LevelDebug
	if e.Err != nil {
		level = slog.LevelWarn
	}
	switch e.Kind {
	case EventWaiting:
		return slog.LevelDebug, "waiting for lock"
	case EventAcquired:
		return slog.LevelDebug, "lock acquired"
	case EventRenewed:
		return slog.LevelDebug, "lock renewed"
	case EventRenewFailed:
		return slog.LevelWarn, "lock not renewed yet"
	case EventLost:
		return slog.LevelError, "lock lost"
	case EventReleased:
		return level, "lock released"
	case EventTrouble:
		return slog.LevelWarn, "lock store in trouble"
	case EventDowngraded:
		return level, "lock downgraded"
	case EventHeldBack:
		return slog.LevelWarn, "lock store held back after a restart"
	case EventFailed:
		return failed(e.Err), "lock not acquired"
	case EventForgotten:
		return slog.LevelWarn, "lock dropped without release"
	}
	return level, "lock event"
}

// failed: somebody else has the key, or the caller waited no longer, which is
// normal use.
func failed(err error) slog.Level {
	var held *HeldError
	if errors.Is(err, ErrClosed) || errors.As(err, &held) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// attrs returns the event's fields, without those that say nothing.
func (e *Event) attrs() []slog.Attr {
	all := make([]slog.Attr, 0, 14)
	all = append(all,
		slog.String("event", e.Kind.String()),
		slog.String("engine", e.Engine),
		slog.String("key", driver.Printable(e.Key)),
		slog.String("owner", e.Owner))
	if e.Fence != 0 {
		all = append(all, slog.Uint64("fence", e.Fence))
	}
	if e.Mode == Shared {
		all = append(all, slog.String("mode", "shared"), slog.Int("slot", e.Slot))
	}
	if e.Holder != (Holder{}) {
		all = append(all, slog.String("holder", e.Holder.String()))
	}
	if e.Ahead > 0 {
		all = append(all, slog.Int("ahead", e.Ahead))
	}
	if e.Left != 0 {
		all = append(all, slog.Duration("left", e.Left))
	}
	if e.Waited != 0 {
		all = append(all, slog.Duration("waited", e.Waited))
	}
	if e.Held != 0 {
		all = append(all, slog.Duration("held", e.Held))
	}
	if e.Age != 0 {
		all = append(all, slog.Duration("age", e.Age))
	}
	if e.Handoff != 0 {
		all = append(all, slog.Duration("handoff", e.Handoff))
	}
	if e.Taken != "" {
		all = append(all, slog.String("taken", e.Taken))
	}
	if e.Err != nil {
		all = append(all, slog.Any("err", e.Err))
	}
	return all
}

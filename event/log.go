// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// LogTo returns a function for hasp.Options.Observe that logs every event to logger; nil means slog.Default.
// Like logger, it may be used by many goroutines and clients.
//
// Losses are errors. What needs attention is a warning: a renewal or release
// that failed, trouble with the store while waiting or instead of a lease, a lease
// that was dropped. All else happens in normal use, and is for debugging.
//
// Of an outage each waiter tells at each attempt. One warning in 10 seconds says so for each engine, with
// the number of similar ones since the last (similar); the others are for debugging.
//
// The attributes are event (Event.Kind as a word), engine, key and owner, and those
// of fence, mode, slot, holder, ahead, left, waited, held, age, handoff, callers and err
// that the event has. The handler is given the observer's context. Keys are escaped as in a Go string, so that no handler prints
// what a terminal might act on.
func LogTo(logger *slog.Logger) func(context.Context, *Event) {
	if logger == nil {
		logger = slog.Default()
	}
	var l limiter
	return func(ctx context.Context, e *Event) {
		level, similar := e.level(), 0
		if e.Kind == Trouble || e.Kind == HeldBack {
			if similar = l.similar(e.Engine, time.Now()); similar < 0 {
				level = slog.LevelDebug
			}
		}
		if !logger.Enabled(ctx, level) {
			return
		}
		attrs := e.attrs()
		if similar > 0 {
			attrs = append(attrs, slog.Int("similar", similar))
		}
		text := e.Kind.words().text
		if e.Kind == Released && errors.Is(e.Err, driver.ErrLost) {
			text = "lock was lost before its release"
		}
		logger.LogAttrs(ctx, level, text, attrs...)
	}
}

// everyTrouble is how often a warning says that waiters are asking a store in vain.
const everyTrouble = 10 * time.Second

// limiter counts what was no warning, by engine.
type limiter struct {
	mu     sync.Mutex
	engine map[string]*warned
}

type warned struct {
	at    time.Time
	since int // how many came after it
}

// similar returns how many came since the last warning, or -1 where another is too early.
func (l *limiter) similar(engine string, now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.engine[engine]
	if w != nil && now.Sub(w.at) < everyTrouble {
		w.since++
		return -1
	}
	if l.engine == nil {
		l.engine = map[string]*warned{}
	}
	l.engine[engine] = &warned{at: now}
	if w == nil {
		return 0
	}
	return w.since
}

// level returns how much an event matters.
func (e *Event) level() slog.Level {
	switch e.Kind {
	case Lost:
		return slog.LevelError
	case RenewFailed, Trouble, HeldBack, Forgotten:
		return slog.LevelWarn
	case Waiting, Acquired, Renewed:
		return slog.LevelDebug
	case Failed: // another owner has the key, or the caller waited no longer, which is normal use
		if errors.Is(e.Err, driver.ErrClosed) || errors.Is(e.Err, driver.ErrHeld) {
			return slog.LevelDebug
		}
		return slog.LevelWarn
	case Released, Downgraded:
	}
	if e.Err != nil {
		return slog.LevelWarn
	}
	return slog.LevelDebug
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
	if e.Mode == driver.Shared {
		all = append(all, slog.String("mode", "shared"), slog.Int("slot", e.Slot))
	}
	if e.Holder != (driver.Holder{}) {
		all = append(all, slog.String("holder", e.Holder.String()))
	}
	if e.Ahead > 0 {
		all = append(all, slog.Int("ahead", e.Ahead))
	}
	for _, t := range [...]struct {
		name string
		took time.Duration
	}{{"left", e.Left}, {"waited", e.Waited}, {"held", e.Held}, {"age", e.Age}, {"handoff", e.Handoff}} {
		if t.took != 0 {
			all = append(all, slog.Duration(t.name, t.took))
		}
	}
	if e.Callers != "" {
		all = append(all, slog.String("callers", e.Callers))
	}
	if e.Err != nil {
		all = append(all, slog.Any("err", e.Err))
	}
	return all
}

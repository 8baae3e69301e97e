// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of event.
const (
	// EventWaiting: the store refused, and Lock (not TryLock) goes on waiting in the queue. Sent
	// after every refusal. Holder, Left and Ahead say what is in the way.
	EventWaiting EventKind = iota + 1
	// EventAcquired: Waited is how long it took, Fence the fence; Handoff is known
	// of some that waited.
	EventAcquired
	// EventRenewed: the lease was renewed; Left is how long it lasts from now, Age
	// how old it had become.
	EventRenewed
	// EventRenewFailed: a renewal had no answer, or an error: Err, with its Class. It is
	// retried until the deadline, in Left. Age is how old the lease is.
	EventRenewFailed
	// EventLost: the lease ended before its Release; Err says why. Held is how
	// long it was held.
	EventLost
	// EventReleased: Err is nil, or why the store did not confirm it. Held is
	// how long the lease was held.
	EventReleased
	// EventTrouble: a Lock that goes on waiting met an error: Err. Sent after each
	// error, but those of EventHeldBack. Left is for how long it asks again at most, beside its
	// context; 0: without end.
	EventTrouble
	// EventDowngraded: a writer became a reader; Err is nil, or why the store
	// may not know.
	EventDowngraded
	// EventForgotten: a lease was dropped without Release, and the garbage
	// collector took it. It is no longer renewed: EventLost follows in Left. Held is
	// how long it was held; Taken, with Options.RecordTaken, by which calls.
	EventForgotten
	// EventFailed: a call that asked the store for a key ended without a lease. Err is
	// what it returns, Waited how long it took. Nothing is sent for a call that never
	// asked: its options were invalid, its context had ended, or its client was closed.
	EventFailed
	// EventHeldBack: a Lock goes on waiting for a store that grants nothing yet since
	// it, or too many of its nodes, were restarted: Err. Left is for how long, if
	// that is known.
	EventHeldBack
)

// String returns the kind as one word.
func (k EventKind) String() string {
	names := [...]string{"", "waiting", "acquired", "renewed", "renew-failed", "lost", "released", "trouble", "downgraded", "forgotten", "failed", "held-back"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Event is something that happened to a lock. Fields that say nothing about a
// kind are zero; more may come. Its observer may read it until it returns, and copies
// what it keeps: the client uses the memory again.
type Event struct {
	// Kind says what happened, and which of the fields below have a meaning.
	Kind EventKind
	// Engine is the kind of store: "redis", "sqlite", "memory", ...
	Engine string
	// Key is what is locked, as the caller named it: any bytes.
	Key string
	// Owner is the 26 characters of this acquisition; see Lease.Owner.
	Owner string
	// Fence is the lease's, 0 before there is one.
	Fence uint64
	// Mode is how the lease holds the key, or the caller asks for it.
	Mode Mode
	// TTL is how long the store keeps the lease without a renewal: as asked for.
	TTL time.Duration
	// Slot is a Semaphore's, once acquired; see Lease.Slot.
	Slot int
	// Holder is the owner in the way of a waiter; zero when that is not known.
	Holder Holder
	// Ahead counts the waiters in the queue before this one.
	Ahead int
	// Left is what is left: of the holder's lease (EventWaiting), of this one
	// (EventRenewed, EventRenewFailed, EventForgotten), or of the time for which
	// the store is held back (EventHeldBack) or asked again (EventTrouble). 0 when that is not known.
	Left time.Duration
	// Sent is when the request was sent that the event is the answer to; zero when it
	// answers none.
	Sent time.Time
	// Age is how long before this answer the request was sent from which the lease
	// counted. At most a third of the TTL and a round trip when all is well.
	Age time.Duration
	// Handoff is how long after the release a waiter that was handed the key came for
	// it, by the store's clock; of a waiter that entered on the message, how long ago that was at most. 0: the
	// key was free, or the engine does not know.
	Handoff time.Duration
	// Waited is how long ago the call began to ask for the key.
	Waited time.Duration
	// Held is how long the lease was held.
	Held time.Duration
	// Taken has the calls that took the lease, one a line, the innermost first;
	// empty without Options.RecordTaken.
	Taken string
	// Leases is by how much the number of held leases changes: 1 with EventAcquired, -1
	// with the EventLost or EventReleased that ends the lease, 0 with all else. A lease
	// that ended before its caller had it never counts, nor do re-entrant leases. The sum
	// over all events of a client is how many it holds, whatever the order they come in.
	Leases int
	// Waiters is by how much the number of calls that wait changes: 1 with the first
	// event of a Lock that goes on waiting, for a holder or for a store in trouble, and -1
	// with the EventAcquired or EventFailed of the same call. Owner cannot tell: in a
	// cohort (LockOptions.Cohort) a call goes on as another's owner.
	Waiters int
	// Err is what went wrong, or why the lease ended: an *Error, which says the Class of
	// trouble with the store.
	Err error
}

// Observers returns a function for [Options.Observe] that calls all of these in their
// order, without those that are nil. It is nil when nothing is left.
func Observers(all ...func(context.Context, *Event)) func(context.Context, *Event) {
	all = slices.DeleteFunc(slices.Clone(all), func(f func(context.Context, *Event)) bool { return f == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return func(ctx context.Context, e *Event) {
		for _, f := range all {
			f(ctx, e)
		}
	}
}

// sentAt returns a time on the monotonic clock as the observer wants it.
func sentAt(mono time.Duration, now clock.Instant) time.Time {
	return time.Now().Add(mono - now.Mono)
}

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
// that the event has. The handler is given the observer's context. Keys are escaped as in a Go string, so that no handler prints
// what a terminal might act on.
func LogTo(logger *slog.Logger) func(context.Context, *Event) {
	if logger == nil {
		logger = slog.Default()
	}
	return func(ctx context.Context, e *Event) {
		level, text := e.describe()
		if logger.Enabled(ctx, level) {
			logger.LogAttrs(ctx, level, text, e.attrs()...)
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

// failed: another owner has the key, or the caller waited no longer, which is
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

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "time"

// EventKind says what happened.
type EventKind uint8

// The kinds of event.
const (
	// EventWaiting: the store refused, and Lock goes on waiting in the queue. Sent
	// after every refusal. Holder, Left and Ahead say who is in the way.
	EventWaiting EventKind = iota + 1
	// EventAcquired: Waited is how long it took, Fence the fence.
	EventAcquired
	// EventRenewed: the lease was renewed; Left is how long it lasts from now.
	EventRenewed
	// EventRenewFailed: a renewal had no answer, or an error: Err. It is retried
	// until the deadline, in Left.
	EventRenewFailed
	// EventLost: the lease ended before its Release; Err says why. Held is how
	// long it was held.
	EventLost
	// EventReleased: Err is nil, or why the store did not confirm it. Held is
	// how long the lease was held.
	EventReleased
	// EventTrouble: a Lock that goes on waiting met an error: Err. Sent after each
	// error. Left is for how long a store that was restarted is still held back, if
	// that is known.
	EventTrouble
	// EventDowngraded: a writer became a reader; Err is nil, or why the store
	// may not know.
	EventDowngraded
	// EventForgotten: a lease was dropped without Release, and the garbage
	// collector took it. It is no longer renewed: EventLost follows in Left. Held is
	// how long it was held; Taken, with Options.RecordTaken, by which calls.
	EventForgotten
)

// String returns the kind as one word.
func (k EventKind) String() string {
	names := [...]string{"", "waiting", "acquired", "renewed", "renew-failed", "lost", "released", "trouble", "downgraded", "forgotten"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Event is something that happened to a lock. Fields that say nothing about a
// kind are zero; more may come.
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
	// Slot is a Semaphore's, once acquired; see Lease.Slot.
	Slot int
	// Holder is who is in the way of a waiter; zero when that is not known.
	Holder Holder
	// Ahead counts the waiters in the queue before this one.
	Ahead int
	// Left is what is left: of the holder's lease (EventWaiting), of this one
	// (EventRenewed, EventRenewFailed, EventForgotten), or of the time for which
	// the store is held back (EventTrouble). 0 when that is not known.
	Left time.Duration
	// Waited is how long ago the call began to ask for the key.
	Waited time.Duration
	// Held is how long the lease was held.
	Held time.Duration
	// Taken has the calls that took the lease, one a line, the innermost first;
	// empty without Options.RecordTaken.
	Taken string
	// Err is what went wrong, or why the lease ended.
	Err error
}

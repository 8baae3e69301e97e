// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package event has what hasp.Options.Observe is told: what happens to the locks of a client. LogTo writes it to a log,
// and the modules of telemetry make metrics and traces of it.
package event

import (
	"context"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Kind says what happened.
type Kind uint8

// The kinds of event.
const (
	// Waiting: the store refused, and Lock (not TryLock) goes on waiting in the queue. Sent
	// after every refusal. Holder, Left and Ahead say what is in the way.
	Waiting Kind = iota + 1
	// Trouble: a Lock that goes on waiting met an error: Err. Sent after each
	// error, but those of HeldBack. Left is for how long it asks again at most, beside its
	// context; 0: without end.
	Trouble
	// HeldBack: a Lock goes on waiting for a store that grants nothing yet since
	// it, or too many of its nodes, were restarted: Err. Left is for how long, if
	// that is known.
	HeldBack
	// Acquired: Waited is how long it took, Fence the fence; Handoff is known
	// of some that waited.
	Acquired
	// Failed: a call that asked the store for a key ended without a lease. Err is
	// what it returns, Waited how long it took. Nothing is sent for a call that never
	// asked: its options were invalid, its context had ended, or its client was closed.
	Failed
	// Renewed: the lease was renewed; Left is how long it lasts from now, Age
	// how old it had become.
	Renewed
	// RenewFailed: a renewal had no answer, or an error: Err, with its Class. It is
	// retried until the deadline, in Left. Age is how old the lease is.
	RenewFailed
	// Downgraded: a writer became a reader; Err is nil, or why the store
	// may not know.
	Downgraded
	// Lost: the lease ended before its Release; Err says why. Held is how
	// long it was held.
	Lost
	// Forgotten: a lease was dropped without Release, and the garbage
	// collector took it. It is no longer renewed: Lost follows in Left. Held is
	// how long it was held; Callers, with hasp.Options.RecordCallers, by which calls.
	Forgotten
	// Released: Err is nil, or why the store did not confirm it, or the loss
	// before it. Held is how long the lease was held.
	Released
)

// kinds has, of each kind, its name and what LogTo says.
var kinds = [...]struct{ name, text string }{
	{"", "lock event"},
	Waiting:     {"waiting", "waiting for lock"},
	Trouble:     {"trouble", "lock store in trouble"},
	HeldBack:    {"held-back", "lock store held back"},
	Acquired:    {"acquired", "lock acquired"},
	Failed:      {"failed", "lock not acquired"},
	Renewed:     {"renewed", "lock renewed"},
	RenewFailed: {"renew-failed", "lock not renewed yet"},
	Downgraded:  {"downgraded", "lock downgraded"},
	Lost:        {"lost", "lock lost"},
	Forgotten:   {"forgotten", "lock dropped without release"},
	Released:    {"released", "lock released"},
}

// String returns the kind as one word; "unknown" for one of a later version.
func (k Kind) String() string { return k.words().name }

func (k Kind) words() struct{ name, text string } {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return struct{ name, text string }{"unknown", "lock event"}
}

// Event is something that happened to a lock. Fields that say nothing about a kind are zero; more may come. Its observer may read it until
// it returns, and copies what it keeps: the client uses the memory again.
type Event struct {
	_      [0]func()     // not comparable, so that any field may be added
	Kind   Kind          // what happened, and which of the fields below have a meaning
	Engine string        // the kind of store: "redis", "sqlite", "memory", ...
	Key    string        // what is locked, as the caller named it: any bytes
	Owner  string        // the 26 characters of this acquisition; see hasp.Lease.Owner
	Fence  uint64        // the lease's, 0 before there is one
	Mode   driver.Mode   // how the lease holds the key, or the caller asks for it
	TTL    time.Duration // how long the store keeps the lease without a renewal: as asked for
	Slot   int           // a Semaphore's, once acquired; see hasp.Lease.Slot
	Holder driver.Holder // the owner in the way of a waiter; zero when that is not known
	Ahead  int           // the number of waiters in the queue before this one
	// Left is what is left: of the holder's lease (Waiting), of this one (Renewed, RenewFailed, Forgotten), or of the time for which the
	// store is held back (HeldBack) or asked again (Trouble). 0 when that is not known.
	Left time.Duration
	// Sent is when the request was sent that the event is the answer to; zero when it answers none.
	Sent time.Time
	// Age is how long before this answer the request was sent from which the lease counted. At most a third of the TTL and a round trip when
	// all is well.
	Age time.Duration
	// Handoff is how long after the release a waiter that was handed the key came for it, by the store's clock; of a waiter that entered on
	// the message, how long ago that was at most. 0: the key was free, or the engine does not know.
	Handoff time.Duration
	Waited  time.Duration // how long ago the call began to ask for the key
	Held    time.Duration // how long the lease was held
	// Callers has the calls that took the lease, one a line, the innermost first; empty without hasp.Options.RecordCallers.
	Callers string
	// LeaseDelta is by how much the number of held leases changes: 1 with Acquired, -1 with the Lost or Released that ends the lease, 0 with all
	// else. A lease that ended before its caller had it never counts, nor do re-entrant leases. The sum over all events of a client is how
	// many it holds, whatever the order they come in.
	LeaseDelta int
	// WaiterDelta is by how much the number of calls that wait changes: 1 with the first event of a Lock that goes on waiting, for a holder or for
	// a store in trouble, and -1 with the Acquired or Failed of the same call. Owner cannot tell: in a cohort (hasp.LockOptions.Cohort) a call
	// goes on as another's owner.
	WaiterDelta int
	// Err is what went wrong, or why the lease ended: a *hasp.Error, which says the Class of trouble with the store.
	Err error
}

// Observers returns a function for hasp.Options.Observe that calls all of these in their order, without those that are nil. It is nil when
// nothing is left.
func Observers(all ...func(context.Context, *Event)) func(context.Context, *Event) {
	all = slices.DeleteFunc(slices.Clone(all), func(f func(context.Context, *Event)) bool { return f == nil })
	if len(all) == 0 {
		return nil
	}
	return func(ctx context.Context, e *Event) {
		for _, f := range all {
			f(ctx, e)
		}
	}
}

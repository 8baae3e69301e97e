// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/hasplock/hasp/internal/wait"
)

// DefaultTTL is how long a store keeps a lease that is not renewed.
const DefaultTTL = 30 * time.Second

const (
	maxPatience  = 10 * time.Second // a place in the queue without a sign of life
	releaseLimit = 5 * time.Second  // what Release and Close may take
	cleanUpLimit = time.Hour        // cleaning up after a call of unknown outcome

	// moment is what an answer of a store that is well may take: a round trip
	// between any two places.
	moment   = 300 * time.Millisecond
	tryLimit = 5 * time.Second // one Try

	// maxTTL is what every engine can add to its clock.
	maxTTL = 10 * 365 * 24 * time.Hour

	defaultFaulty = 30 * time.Second // Options.MaxFaulty
)

// Options configure a Client. The zero value, and nil, mean the defaults.
type Options struct {
	// Observe is called for every event, for logs (event.LogTo) and metrics: from many
	// goroutines, never under a lock of this package. It must return soon: a slow
	// call for a renewal delays other leases in the batch. ctx is the caller's, for its values
	// (a trace, a logger): of a lease, that of the call which took it. It may have ended,
	// and is never nil. nil: no calls.
	Observe func(ctx context.Context, e *event.Event)
	// RecordCallers notes for each lease which calls took it, so that event.Forgotten can
	// say where. It costs about a microsecond and 200 bytes for each lease.
	RecordCallers bool
	// MaxSilence ends a Lock that has had no good answer for so long because the store
	// is unreachable, fails, has too few nodes that vote, or is held back since it is new, restarted or
	// flushed (for its largest TTL and about ten seconds, or until Operator.Admit): up to a pause between two attempts
	// earlier, if no other attempt fits in. 0: no bound: the Lock waits until its context ends. Negative is an error.
	MaxSilence time.Duration
	// MaxFaulty ends a Lock that the store has refused for so long without a good answer, the time
	// not counted for which it was away meanwhile: see Mutex.Lock for which errors. 0 means 30 s: a rotated password,
	// a failover. Negative is an error.
	MaxFaulty time.Duration
	// StateDir is a directory that remembers how long a store has been held back after
	// a restart, so that processes that live for less than the wait finish it together.
	// Only a single store with a node record needs it; a quorum has its own. Empty:
	// each process waits for itself.
	StateDir string
	// StateFailed, if not nil, is told once why a wait was not kept in StateDir: then the store is held back, and
	// processes that live for less than its wait never end that. It must not block.
	StateFailed func(error)
}

// LockOptions say how a key is held. The zero value, and nil, mean the defaults.
// One value may serve any number of locks and goroutines.
type LockOptions struct {
	// TTL is how long the store keeps the lease when it is not renewed, and so how long
	// others wait after this process died. 0 means DefaultTTL. Negative, less than
	// the engine's minimum, or more than ten years is an error.
	TTL time.Duration
	// MaxHold ends the lease as lost after so long, renewed or not, counted from when
	// the caller is given the lease. 0: no bound.
	MaxHold time.Duration
	// Lead is how long before the deadline the lease's contexts end, so that work can
	// stop in time. 0: at the deadline. It must be less than the TTL.
	Lead time.Duration
	// NoRenew turns renewal off: the lease ends after the TTL unless Extend is called.
	NoRenew bool
	// Reentrant lets a Lock with a context from a lease of the same client and
	// key count up instead of failing; RWMutex and Semaphore say which may nest in
	// which. The hold keeps the options that it was acquired with. Goroutines that
	// share such a context do not exclude each other.
	Reentrant bool
	// Cohort is how long one grant of the store may serve the calls of Mutex.Lock that wait in this client for one key with
	// equal options; 0 is off, and each call queues in the store. The calls take turns without a round trip, each with a
	// lease of its own and a larger fence. A grant serves the calls that waited when it was made, 64 at most. Waiters in other
	// clients come after these, even those that came first. The store and Operator.Break see one owner. If the store loses
	// the lease, a turn that begins before the next renewal may have a smaller fence than the new holder's: a guard refuses it.
	Cohort time.Duration
	// Keep is how long this client may keep the key of a Mutex after Release, for its own next Lock or TryLock with equal
	// options; 0 frees the key at once. That call needs no round trip, and has a lease of its own and a larger fence, as in a
	// Cohort. Use it for a key that one process locks again and again, and others seldom. A Lock in another client gets a key
	// that is merely kept after a few round trips on Redis, Redlock and in memory, and elsewhere after Keep at most. A TryLock
	// waits likewise on Redis and in memory; elsewhere it returns ErrHeld. If the process dies while it keeps the key, the
	// next holder waits for the TTL, and is told (Lease.Abandoned).
	Keep time.Duration
	// ReleaseBehind has Release, and Do, return before the store has answered, which saves a round trip. What it
	// answers, event.Released says; a release without an answer is sent again as any other. The next Lock of the key in
	// this client begins when that is over (after 5 s at most), also where it is of another slot or reader, and Close waits for it, and returns its
	// error. A program that ends without Close may leave the key held until its TTL is over. Release still returns
	// the loss of a lease that it knows of. Use it for one key after another; for the same key again, Keep is better.
	ReleaseBehind bool
	// Reason is shown to the waiters of the key.
	Reason string
	// Label names the process that the key is held for, where that is not this one: an agent locks for its clients. Its
	// Reason and Since are not used. nil, or without Host and PID: this process.
	Label *driver.Label
}

// settings are LockOptions with the defaults in place. They do not change.
type settings struct {
	LockOptions
	terms lifetime.Terms
	waits wait.Terms
}

// set makes n the settings of options, and returns what is wrong with them.
func (n *settings) set(o *LockOptions, tr driver.Traits) error {
	if o != nil {
		n.LockOptions = *o
	}
	if n.TTL == 0 {
		n.TTL = DefaultTTL
	}
	n.terms = lifetime.Terms{TTL: n.TTL, Lead: n.Lead, MaxHold: n.MaxHold, Keep: n.Keep, NoRenew: n.NoRenew}
	drift := lifetime.Drift(n.TTL)
	switch {
	case n.TTL < 0:
		return fmt.Errorf("the TTL is %v: it must be positive", n.TTL)
	case n.TTL < tr.MinTTL:
		return fmt.Errorf("the TTL is %v: %s needs at least %v", n.TTL, tr.Engine, tr.MinTTL)
	case tr.MaxTTL > 0 && n.TTL > tr.MaxTTL:
		return fmt.Errorf("the TTL is %v: %s allows at most %v", n.TTL, tr.Engine, tr.MaxTTL)
	case n.TTL > maxTTL:
		return fmt.Errorf("the TTL is %v: it must be at most %v, which is ten years", n.TTL, maxTTL)
	case n.TTL <= drift:
		return fmt.Errorf("the TTL is %v: nothing is left of it after the drift of %v", n.TTL, drift)
	case n.Lead < 0 || n.Lead >= n.TTL-drift:
		return fmt.Errorf("the lead is %v: it must be between 0 and the TTL of %v less its drift of %v", n.Lead, n.TTL, drift)
	case n.Cohort < 0:
		return fmt.Errorf("the time of a cohort is %v: it must be positive, or 0 for none", n.Cohort)
	case n.Cohort > 0 && n.NoRenew:
		return errors.New("a cohort needs renewal: with NoRenew each turn would have only what the previous one left of the TTL")
	case n.Keep < 0:
		return fmt.Errorf("the time to keep a key is %v: it must be positive, or 0 to give it back at once", n.Keep)
	case n.Keep > 0 && n.NoRenew:
		return errors.New("a key that is kept needs renewal: set Keep to 0, or NoRenew to false")
	case n.MaxHold < 0:
		return fmt.Errorf("MaxHold is %v: it must be positive, or 0 for no bound", n.MaxHold)
	case n.MaxHold > 0 && n.MaxHold <= n.Lead:
		return fmt.Errorf("MaxHold is %v: it must be longer than the lead of %v", n.MaxHold, n.Lead)
	}
	return nil
}

// Mode is how a key is held. The zero value is Exclusive.
type Mode = driver.Mode

// The modes.
const (
	Exclusive = driver.Exclusive // one holder
	Shared    = driver.Shared    // readers, or the holders of a semaphore's slots
)

// Info describes a key in the store; its fields are those of [driver.Info].
type Info = driver.Info

// Holder holds a key or waits for it; its fields are those of [driver.Holder].
type Holder = driver.Holder

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
	// is unreachable, fails, has too few nodes that vote, or is held back after a
	// restart (for its largest TTL and about ten seconds): up to a pause between two attempts
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
	// Cohort lets the calls of Mutex.Lock of this client that wait for one key with
	// equal options take turns on one grant of the store. The lease goes from one to
	// the next without a round trip, each time with a larger fence, until this long
	// after the grant, or until the calls that waited when the store granted have had
	// their turn, 64 at most. Waiters elsewhere come after them, however long they have
	// waited. In the store, and to Break, the turns are one owner. 0: every Lock queues
	// for itself.
	//
	// The fences of the turns are reserved with the grant. If the store grants the key to another before this lease is over (it lost
	// the lease, or its clock stepped forward), a turn after that may have a smaller fence than the other, until the next renewal. A guard
	// refuses it.
	Cohort time.Duration
	// Keep is how long a client keeps the key of a Mutex after its Release, for its next Lock or
	// TryLock with equal options. That is granted without the store, with a larger fence (which is reserved, see Cohort), and
	// promises what every lease does. Calls of the client that wait meanwhile take turns without
	// the store, too. It is for a key that one process wants again and again, and others seldom.
	//
	// To others a kept key is held: a Lock elsewhere waits until this client learns of it (see
	// Lease.Wanted), but not for longer than Keep if the key is not used here. So does a TryLock where
	// the engine says that the key is kept (Redis, memory), beside its own requests for three times what the slowest of
	// them took and 5 ms, and for 5 s at most: enough also where thousands of keys go back at once, unless this process stands
	// still. Over others it is refused. Then nothing more is granted here, and the key goes back. It also does when a
	// renewal fails or is late, at Close, for a lock with other options, and after at most 1,024
	// grants. If the process dies, the next holder is told (Lease.Abandoned). A key that had to go
	// back before it was used again is not kept after the next 2 Releases, then 4, up to 64, until
	// it is used again. 0: given back at once.
	Keep time.Duration
	// Reason is shown to the waiters of the key.
	Reason string
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

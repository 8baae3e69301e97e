// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"iter"
	"time"
)

// A Driver keeps locks in one store. All its methods are safe for concurrent use.
//
// Methods that take a context return soon after it ends, whatever the network does. An error from Try, Renew or Release
// means that the request may or may not have been carried out; NotSent marks that of a Try that never was, nor will be.
// Leases and places expire by the store's own clock: an engine never compares anything with the client's wall clock.
type Driver interface {
	// Traits returns what this engine promises, without I/O: constant, but for MaxTTL once a store is reached.
	Traits() Traits

	// Check says without I/O that the configuration cannot work. hasp.New returns the error, so that a constructor need not.
	Check() error

	// Try asks once for r.Key on behalf of r.Owner, and never waits.
	//
	// The key is granted when no live place of another owner is before r's in the queue, and r is compatible with the holders: there are
	// none; or r and all of them are Shared, and they are fewer than the smallest Limit among theirs and r's. Asking again with the same
	// owner returns the standing grant with its fence, or keeps the place in the queue, so that a lost reply does no harm. Try by the holder
	// sets the expiry to the later of what it is and now + r.TTL. Its Try in another Mode, without Convert, was overtaken by a Try that
	// converted: it is refused and changes nothing.
	//
	// With r.Queue a refused request joins the end of the queue, or keeps the place it has, which then lasts for r.Patience. Without it, a
	// refused request leaves no trace. A Try that arrives after a Release of the same owner is refused, see ReleaseRequest.Settled.
	Try(ctx context.Context, r TryRequest) (Result, error)

	// Renew prolongs leases and places in the queue, many at a time. A request without Queue sets the expiry of the lease that its owner
	// holds, in whichever Mode, to the later of what it is and now + TTL; it never grants. A request with Queue is a sign of life from the
	// owner of a place. done is called at most once for each index, as soon as that outcome is known, possibly by several goroutines at once,
	// and never after Renew has returned. The outcome of a request for which it was not called is unknown.
	Renew(ctx context.Context, rs []RenewRequest, done func(i int, r Renewal))

	// Release ends what r.Owner has: the lease, in whichever Mode, or the place. The key goes to the next live place in the queue, or to as
	// many of the next ones as can hold it together. It compares Owner and Label as a whole and never affects another owner. The error is
	// ErrNotHeld when the owner had neither; nil also when the engine itself sent the request twice, and the second found neither: the first
	// may have released it. A break (End Unfinished) of a lease that is not this client's is sent once.
	Release(ctx context.Context, r ReleaseRequest) error

	// Watch returns a channel of hints for c.Owner. It returns once no later event will be missed: the store has confirmed that, or can tell
	// what happened since the owner joins, or the engine looks once it watches. When a connection that carried hints is lost, every watcher
	// gets one. The channel has room for one hint ([Hint.Send]), and is never closed; hints end with ctx. A nil channel means that the engine
	// has no hints: poll. Without TellsFree a channel tells only what RetryIn does not. What an engine keeps of a handover is noted before
	// the hint is sent: the waiter may release the key at once. An error does not end the wait: hasp polls, and calls Watch again.
	Watch(ctx context.Context, c Claim) (<-chan Hint, error)

	// Inspect returns the holders and the waiters of a key. A free key is not an error: Info.Held is false.
	Inspect(ctx context.Context, key string) (Info, error)

	// List yields the keys that are held or waited for and start with prefix, in no particular order, possibly with duplicates. It must not
	// block the store for others. The sequence ends after the first error.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Classify returns the class of an error of this driver.
	Classify(err error) Class

	// Close ends what the driver itself opened, and nothing that the caller gave it. It is called when no other call runs.
	Close() error
}

// Hint says that now is a good moment for a waiter to Try again. Hints may be lost, late, repeated or spurious.
type Hint struct{ Handover Handover } // zero without TellsHandover

// Claim identifies one acquisition. It is part of every request about it.
type Claim struct {
	Key   string // what is locked: 1 to MaxKey bytes of any value
	Owner string // the random id of this acquisition, fresh for each: OwnerLen base32 characters
	Label string // describes the owner for people, at most MaxLabel bytes; to an engine an opaque text
	// Mode and Limit: Shared allows Limit holders at most, 0 for any number. They change with TryRequest.Convert only. Where owners name
	// different limits for a key, the smallest among the holders' and the requester's counts.
	Mode  Mode
	Limit int
}

// TryRequest is the argument of Try.
type TryRequest struct {
	Claim
	TTL      time.Duration // how long the store keeps a lease that its holder does not renew; positive
	Queue    bool          // join the queue when refused
	Patience time.Duration // how long a place stays without a sign of life; positive with Queue
	Fences   int           // how many consecutive fences to mint, for holders that take turns on one grant; 0 means 1
	// Convert: the owner holds the key Exclusive, and holds it Shared from now on, with the same fence and without a moment in which the key
	// is free; the next waiters that can share it are granted it. Asking again returns the standing grant. An owner that holds nothing is
	// refused, and does not queue.
	Convert bool
	Fence   uint64 // with Convert, the fence held; 0: not known. A fence larger than the owner's here is refused
	Enters  bool   // for an engine with hints that tell of handovers: see Handover
}

// RenewRequest is one of the requests of a Renew.
type RenewRequest struct {
	Claim
	TTL      time.Duration // for a lease: as TryRequest.TTL
	Queue    bool          // the request is about a place in the queue
	Patience time.Duration // for a place: as TryRequest.Patience
	Fence    uint64        // for a lease: the fence held; 0: not known. Only a Node needs to look at it
	Entered  bool          // the lease began with a Handover: this is its claim, as a Try's would be
	Wanted   func()        // for an engine with TellsWanted: see there
	Keeps    bool          // with Wanted: the holder gives the lease back when it is told, unless a caller works under it
}

// ReleaseRequest is the argument of Release.
type ReleaseRequest struct {
	Claim
	TTL time.Duration // the longest TTL that this owner asked for
	End End           // how the lease ended
	// Settled: every Try of this owner was answered, so that none can arrive later. The engine must not remember that the owner was released:
	// it may ask again. Otherwise every Try of this owner is refused for MaxTransit.
	Settled bool
}

// Result is the answer to a Try.
type Result struct {
	Granted   bool
	Fence     uint64        // of the grant: larger than that of every previous holder. 0 without Traits.Fencing
	Fences    int           // how many the grant has, Fence being the last: 1 when an earlier Try was granted. 0 means 1
	TTL       time.Duration // the store keeps the lease for at least this long, counted from the start of this call
	Slot      int           // with Limit: the smallest number from 0 that no other holder has
	Handoff   time.Duration // how long before this answer the owner's place was handed the key that it claims now; 0: not known
	Abandoned bool          // a previous holder did not release the key, so that what it protects may need repair; see End
	Unsettled bool          // also beside an error: the engine asked twice, and its first request may still arrive; see ReleaseRequest.Settled

	Why     Why           // of a refusal: its reason
	Ahead   int           // how many places are before this owner's in the queue, not counting holders
	Left    time.Duration // what is left of the holder's lease; 0: not known, or it never expires
	RetryIn time.Duration // when a Try may next succeed without a hint, as when the holder's lease expires; 0: wait for a hint
	Holder  Holder        // the holder of the key (any of them when it is shared)
	Run     string        // identifies one run of the store: it changes with a restart; empty when not known
	Keeps   bool          // of a refusal: a holder asked with RenewRequest.Keeps, so that a waiter that joins may have it at once
	At      time.Duration // of a refusal to an owner that Enters: see Handover
}

// Renewal is the outcome of one request of a Renew.
type Renewal struct {
	// Err is nil when the lease or the place stands. ErrNotHeld: the owner does not hold the key (or has no place: it was handed the key, or
	// was passed over; it should Try). On any other error the outcome is unknown.
	Err       error
	TTL       time.Duration // for a lease: as Result.TTL
	Wanted    bool          // for a lease: a waiter is in the queue for its key
	RetryIn   time.Duration // for a place: as Result.RetryIn
	Unclaimed bool          // of a request with Entered: the lease was only prolonged, and is still to be claimed
}

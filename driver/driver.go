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
// Methods that take a context must return soon after it ends, whatever the
// network does. An error from Try, Renew or Release means that the request may or
// may not have been carried out; NotSent marks the error of a Try that was not
// carried out and never will be.
//
// Leases and places expire by the store's own clock: an engine never compares
// anything with the client's wall clock.
type Driver interface {
	// Traits returns what this engine promises. It does no I/O; the value is constant, but for what a store
	// decides once it is reached: a MaxTTL that is shorter then, and SessionTTL.
	Traits() Traits

	// Check says without I/O that the configuration cannot work; hasp.New returns the error. So a constructor
	// returns the driver alone.
	Check() error

	// Try asks once for r.Key on behalf of r.Owner, and never waits.
	//
	// The key is granted when no live place of another owner is before r's in the
	// queue, and r is compatible with the holders: there are none; or r and all of
	// them are Shared, and they are fewer than the smallest Limit among theirs and
	// r's. Asking again with the same owner returns the standing grant with its
	// fence, or keeps the place in the queue, so that a lost reply does no harm. Try by
	// the holder sets the expiry to the later of what it is and now + r.TTL. The
	// holder's Try in another Mode, without Convert, was overtaken by one that
	// converted: it is refused and changes nothing.
	//
	// With r.Queue a refused request joins the end of the queue, or keeps the
	// place it has, which then lasts for r.Patience. Without it, a refused request
	// leaves no trace. A Try that arrives after a Release of the same owner is
	// refused, see ReleaseRequest.Settled.
	Try(ctx context.Context, r TryRequest) (Result, error)

	// Renew prolongs leases and places in the queue, many at a time. A request
	// without Queue sets the expiry of the lease that its owner holds, in whichever
	// Mode, to the later of what it is and now + TTL; it never grants. A request
	// with Queue is a sign of life from the owner of a place.
	//
	// done is called at most once for each index, as soon as that outcome is
	// known, possibly by several goroutines at once, and never after Renew has
	// returned. The outcome of a request for which it was not called is unknown.
	Renew(ctx context.Context, rs []RenewRequest, done func(i int, r Renewal))

	// Release ends what r.Owner has: the lease, in whichever Mode, or the place.
	// The key goes to the next live place in the queue, or to as many of the next
	// ones as can hold it together. It compares Owner and Label as a whole and never
	// affects another owner. The error is ErrNotHeld when the owner had neither.
	Release(ctx context.Context, r ReleaseRequest) error

	// Watch returns a channel of hints: each says that now is a good moment for
	// c.Owner to Try again. It returns once no later event will be missed: the store has
	// confirmed that, or can tell what happened since the owner joins, or the engine looks once it watches. Hints may be
	// lost or spurious; when a connection that carried them is lost, every watcher gets
	// one. A handover of before the Watch is never told. The channel has room for one hint, and is never closed; hints end with ctx. A
	// nil channel means that the engine has no hints: poll. Without Traits.Hints a channel tells only what RetryIn does not. An error does not end the
	// wait: hasp polls, and calls Watch again after a while.
	Watch(ctx context.Context, c Claim) (<-chan Hint, error)

	// Inspect returns who holds a key and who waits for it. A key that nobody
	// holds is not an error: Info.Held is false.
	Inspect(ctx context.Context, key string) (Info, error)

	// List yields the keys that are held or waited for and start with prefix,
	// in no particular order, possibly with duplicates. It must not block the store
	// for others. The sequence ends after the first error.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Classify returns the class of an error of this driver.
	Classify(err error) Class

	// Close ends what the driver itself opened (a subscription, a goroutine),
	// and nothing that the caller gave it. It is called when no other call is
	// under way.
	Close() error
}

// TryRequest is the argument of Try.
type TryRequest struct {
	Claim
	TTL      time.Duration // how long the store keeps a lease that nobody renews; positive
	Queue    bool          // join the queue when refused
	Patience time.Duration // how long a place stays without a sign of life; positive with Queue
	Fences   int           // how many consecutive fences to mint, for holders that take turns on one grant; 0 means 1
	// Convert: the owner holds the key Exclusive, and holds it Shared from now on,
	// with the same fence and without a moment in which nobody holds it; the next
	// waiters that can share it are granted it. Asking again returns the standing
	// grant. An owner that holds nothing is refused, and does not queue.
	Convert bool
	Fence   uint64 // with Convert, the fence held; 0: not known. One that is larger than the owner's here is refused
	// Enters, with Queue and Exclusive: when the key is handed to the owner's place it may act on
	// Hint.Handover before it asks again. So an owner that then neither claims the key nor releases it
	// Unused may have begun to work. A Try says that the owner did not enter. An engine whose hints have
	// no handover need not look at it.
	Enters bool
}

// RenewRequest is one of the requests of a Renew.
type RenewRequest struct {
	Claim
	TTL      time.Duration // for a lease: as TryRequest.TTL
	Queue    bool          // the request is about a place in the queue
	Patience time.Duration // for a place: as TryRequest.Patience
	Fence    uint64        // for a lease: the fence held; 0: not known. Only a Node needs to look at it
	Entered  bool          // the lease began with a Handover: this is its claim, as a Try's would be
	// Wanted, with Traits.TellsWanted and for a lease, is called when somebody joins the queue
	// for its key, until the lease is released, or renewed without it; nil: nobody wants to know. Who
	// joins while somebody waits need not be reported: Renewal.Wanted of the same Renew says
	// whether somebody does, and none who joins after that is missed, unless a
	// message is lost. A call that is late, repeated or for nobody is rare and does no harm.
	// Wanted does not block, and may be called by any goroutine until Close returns.
	Wanted func()
	Keeps  bool // with Wanted: the holder gives the lease back when it is told, unless somebody works under it
}

// LateRequest is how long a request may be under way at most.
const LateRequest = 10 * time.Second

// ReleaseRequest is the argument of Release.
type ReleaseRequest struct {
	Claim
	TTL time.Duration // the longest TTL that this owner asked for
	End End           // how the lease ended
	// Settled: every Try of this owner was answered, so that none can arrive later.
	// The engine must not remember that the owner was released: it may ask again.
	// Otherwise every Try of this owner is refused for LateRequest, in which one may
	// still be under way.
	Settled bool
}

// Result is the answer to a Try.
type Result struct {
	Granted bool
	// Fence is that of the grant: larger than that of every previous holder. 0 without Traits.Fencing. Of
	// a refusal to one that Enters, and perhaps to others: the newest of the key, so that a Handover with this one, or an older one, is of before.
	Fence  uint64
	Fences int           // how many the grant has, Fence being the last: 1 when an earlier Try was granted. 0 means 1
	TTL    time.Duration // the store keeps the lease for at least this long, counted from the start of this call
	Slot   int           // with Limit: the smallest number from 0 that no other holder has
	// Handoff is how long before the store answered it gave the key to this owner's place,
	// which now came for it; 0: it did not, or does not know.
	Handoff time.Duration
	// Abandoned: a previous holder did not release the key, so that what it
	// protects may need repair; see End.
	Abandoned bool

	Why     Why           // of a refusal: its reason
	Keeps   bool          // of a refusal: a holder asked with RenewRequest.Keeps, so that who joins may have the key at once
	Ahead   int           // how many places are before this owner's in the queue, not counting holders
	Left    time.Duration // what is left of the holder's lease; 0: not known, or it never expires
	RetryIn time.Duration // when a Try may next succeed without a hint, as when the holder's lease expires; 0: wait for a hint
	Holder  Holder        // who holds the key (any one of them when it is shared)
	Node    string        // identifies one run of the store: it changes with a restart; empty when not known
	// At is when the store answered, on its own clock, from an arbitrary moment on. Of a refusal to one
	// that Enters; 0: it must Try.
	At time.Duration
}

// Renewal is the outcome of one request of a Renew.
type Renewal struct {
	// Err is nil when the lease or the place stands. ErrNotHeld: the owner does
	// not hold the key (or has no place: it was handed the key, or was passed over;
	// it should Try). On any other error the outcome is unknown.
	Err     error
	TTL     time.Duration // for a lease: as Result.TTL
	Wanted  bool          // for a lease: somebody waits in the queue for its key
	Entered bool          // of one with Entered: it was only prolonged, and is still to be claimed
	RetryIn time.Duration // for a place: as Result.RetryIn
}

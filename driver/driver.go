// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"iter"
	"time"
)

// A Driver keeps locks in one store. All methods may be called by any number
// of goroutines at once.
//
// Methods that take a context must return soon after it ends, whatever the
// network does. An error from Try, Renew or Release says that the request may or
// may not have been carried out; NotSent is for a Try that certainly never was,
// and never will be.
//
// Time in the store is the store's own: an engine never compares anything with
// the wall clock of the client.
type Driver interface {
	// Traits says what this engine promises. It does no I/O; the value is constant.
	Traits() Traits

	// Try asks once for r.Key on behalf of r.Owner, and never waits.
	//
	// The key is granted when no live place of another owner is before r's in its
	// line, and r can hold it beside whoever does: nobody; or, when r is Shared,
	// holders that are all Shared and fewer than the smallest Limit among theirs
	// and r's. Asking again with the same owner returns the standing grant with its
	// fence, or keeps the place in line: a lost reply repairs itself. Try by the
	// holder sets the expiry to the later of what it is and now + r.TTL. The holder's
	// Try in another Mode, without Convert, was overtaken by one that converted: it
	// is refused and changes nothing.
	//
	// With r.Queue a refused request joins the end of the line, or keeps the
	// place it has, with a sign of life that lasts r.Patience. Without it, a
	// refused request leaves no trace. A Try that comes after a Release of the same
	// owner is refused, see ReleaseRequest.Settled.
	Try(ctx context.Context, r TryRequest) (Result, error)

	// Renew prolongs leases, and keeps places in line, many at a time. For a
	// request without Queue it sets the expiry of the lease that r.Owner holds,
	// in whichever Mode, to the later of what it is and now + r.TTL; it never
	// grants. For one with Queue it is the sign of life of a place.
	//
	// done is called at most once for each index, as soon as that outcome is
	// known, possibly by several goroutines at once, and never after Renew
	// returned. What was not reported is unknown.
	Renew(ctx context.Context, rs []RenewRequest, done func(i int, r Renewal))

	// Release gives up what r.Owner has: the lease, in whichever Mode, or the
	// place. The key goes to the next live place in line, or to as many as can
	// hold it together. It compares Owner and Label as a whole and never touches
	// what is another's. It is ErrNotHeld when the owner had neither.
	Release(ctx context.Context, r ReleaseRequest) error

	// Watch returns a channel on which the engine says that now is a good
	// moment for c.Owner to Try again. It returns after the store confirmed
	// that nothing will be missed from now on. Hints may be lost or spurious;
	// after a connection that carried them was lost, every watcher gets one.
	// The channel has room for one hint, and is never closed; hints end with
	// ctx. A nil channel means that the engine has no hints: poll. An error ends
	// no wait: hasp polls, and asks again for hints after a while.
	Watch(ctx context.Context, c Claim) (<-chan struct{}, error)

	// Inspect says who holds a key and who waits for it. A key that nobody
	// holds is no error: Info.Held is false.
	Inspect(ctx context.Context, key string) (Info, error)

	// List yields the keys that are held or waited for and start with prefix,
	// in no order, possibly one twice. It must not stop the store for others.
	// The sequence ends after the first error.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Classify says what kind of trouble an error of this driver is.
	Classify(err error) Class

	// Close ends what the driver itself opened (a subscription, a goroutine),
	// and nothing that the caller gave it. It is called once no other call is
	// under way.
	Close() error
}

// TryRequest is what Try is asked. Check says what is wrong with one.
type TryRequest struct {
	Claim
	TTL      time.Duration // how long the store keeps a lease that nobody renews; positive
	Queue    bool          // join the line when refused
	Patience time.Duration // how long a place stays without a sign of life; positive with Queue
	Fences   int           // so many fences in a row, for holders that take turns on one grant; 0 means 1
	// Convert: the owner holds the key, Exclusive, and has it Shared from now on,
	// with the fence it has and without a moment in which nobody holds it; those in
	// line who can hold it too are let in. Asked again it is the standing grant. An
	// owner that holds nothing is refused, and joins no line.
	Convert bool
	Fence   uint64 // with Convert, the fence held; 0: not known. One that is larger than what the owner has here is refused
}

// RenewRequest is one request of a Renew.
type RenewRequest struct {
	Claim
	TTL      time.Duration // as TryRequest.TTL, of a lease
	Queue    bool          // it is about a place in line
	Patience time.Duration // as TryRequest.Patience, of a place
	Fence    uint64        // of a lease, the fence held; 0: not known. Only a Node need look at it
}

// ReleaseRequest is what Release is asked.
type ReleaseRequest struct {
	Claim
	TTL time.Duration // the longest that this owner asked for
	End End           // how the lease ended
	// Settled: every Try of this owner was answered, so that none can come later.
	// The engine must not remember that it was released: the same owner may ask
	// again. Otherwise any Try of it is refused for as long as one may still be
	// under way: TTL, or ten seconds.
	Settled bool
}

// Result is the answer to a Try.
type Result struct {
	Granted bool
	Fence   uint64        // of the grant: larger than that of every holder before. 0 without Traits.Fencing
	Fences  int           // how many the grant has, Fence being the last: 1 when an earlier Try was granted. 0 means 1
	TTL     time.Duration // at least this long, from the start of this call, the store keeps the lease
	Slot    int           // the number among Limit holders: the smallest from 0 that no other holder has
	// Abandoned: a holder before this one did not finish, so that what the key
	// protects may need repair; see End.
	Abandoned bool

	Why     Why           // of a refusal
	Ahead   int           // the places in line before this owner's, the holder not among them
	Left    time.Duration // what is left of the holder's lease; 0: not known, or it has no expiry
	RetryIn time.Duration // when this may next succeed without a hint, such as when the holder expires; 0: wait for a hint
	Holder  Holder        // who has the key (any one of them when it is shared)
	Node    string        // names the present life of the store: another after a restart; empty when not known
}

// Renewal is the outcome of one request of a Renew.
type Renewal struct {
	// Err is nil when the lease or the place stands. ErrNotHeld: the owner
	// does not hold the key (or has no place: it was handed the key, or was
	// skipped; it should Try). Any other error: unknown.
	Err     error
	TTL     time.Duration // as Result.TTL, of a lease
	Wanted  bool          // somebody waits in line for this lease
	RetryIn time.Duration // as Result.RetryIn, of a place
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver is the seam between hasp and the stores that keep its locks.
//
// Programs use package hasp; only an engine implements [Driver], and package
// drivertest is its specification: a table of cases, each with its rule as a
// sentence, that every engine must pass.
//
// Four rules shape the seam. An engine never waits: blocking is written once,
// in hasp. An engine never retries and never sleeps: it returns the store's own
// error, and hasp decides. A refusal is data, an error means that the outcome
// is unknown. And everything an engine does for an owner may be asked twice:
// requests get lost, duplicated and delayed, and replies get lost.
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
// network does, and must tell hasp the truth about what they know: an error
// from Try, Renew or Release says that the request may or may not have been
// carried out. Of a Try that certainly never was, and never will be, an engine can
// say so (NotSent): nothing is then released.
//
// Time in the store is the store's own: an engine never compares anything with
// the wall clock of the client.
type Driver interface {
	// Traits says what this engine, so configured, promises. It does no I/O and
	// always returns the same value.
	Traits() Traits

	// Try asks once for r.Key on behalf of r.Owner, and never waits.
	//
	// The key is granted when no live place of another owner is before r's in its
	// line, and r can hold it beside whoever does: nobody; or, when r is Shared,
	// holders that are all Shared and fewer than the smallest Limit among theirs
	// and r's. So readers that stand next to each other enter together, and a
	// writer in line stops those after it. Asking again with the same owner
	// returns the standing grant with its fence, or keeps the place in line:
	// a lost reply repairs itself. Try by the holder sets the expiry to the
	// later of what it is and now + r.TTL, never earlier. A lease changes its
	// Mode only with Request.Convert: the holder's Try in another Mode is refused
	// and changes nothing, since it may be one that was overtaken.
	//
	// With r.Queue a refused request joins the end of the line, or keeps the
	// place it has, with a sign of life that lasts r.Patience. Without it, a
	// refused request leaves no trace.
	//
	// A Try that reaches the store after a Release of the same owner is
	// refused: an owner that was released is never granted anything again for
	// as long as a request can be under way (see Request.Settled).
	Try(ctx context.Context, r Request) (Result, error)

	// Renew prolongs leases, and keeps places in line, many at a time. For a
	// request without Queue it sets the expiry of the lease that r.Owner holds,
	// in whichever Mode, to the later of what it is and now + r.TTL; it never
	// grants. For one with Queue it is the sign of life of a place.
	//
	// done is called at most once for each index, as soon as that outcome is
	// known, possibly by several goroutines at once, and never after Renew
	// returned. What was not reported is unknown.
	Renew(ctx context.Context, rs []Request, done func(i int, r Renewal))

	// Release gives up what r.Owner has: the lease, in whichever Mode, or the
	// place. The key goes to the next live place in line, or to as many as can
	// hold it together. It compares Owner and Label as a whole and never touches
	// what is another's.
	// It returns ErrNotHeld when the owner had neither; even then a late Try
	// of that owner must be refused afterwards.
	Release(ctx context.Context, r Request) error

	// Watch returns a channel on which the engine says that now is a good
	// moment for r.Owner to Try again. It returns after the store confirmed
	// that nothing will be missed from now on. Hints may be lost or spurious;
	// after a connection that carried them was lost, every watcher gets one.
	// The channel has room for one hint, and is never closed; hints end with
	// ctx. A nil channel means that the engine has no hints: poll. An error ends
	// no wait: hasp polls, and asks again for hints after a while.
	Watch(ctx context.Context, r Request) (<-chan struct{}, error)

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

// A Checker is a Driver that can tell without I/O that it was configured in a
// way that cannot work. hasp.New fails with the error.
type Checker interface{ Check() error }

// A Node is a Driver whose store keeps a node record, so that it grants nothing
// after it may have forgotten what it granted: after a restart, a flush, or
// when another server answers in its place. Every path that grants (a Try, a
// handoff) compares the record with the present life of the store; where they
// differ, a Try is refused with NotVoting, a Renew is an error, and a Release
// only deletes.
//
// The "delayed restart" of the Redlock algorithm, done by its clients: whoever
// has seen one and the same record that waits for long enough by a clock of its
// own (internal/admission) lets the node vote again.
type Node interface {
	Driver
	// Record looks at the node record. Where it is missing, or of another life
	// of the store, it is replaced by one that waits, which no other is equal
	// to. It is ErrUnsupported where this driver was not set up to keep one.
	Record(ctx context.Context) (Record, error)
	// Admit lets the node vote, for leases of maxTTL at most, when its record
	// is exactly r and still of the present life of the store. Otherwise it
	// changes nothing and the error is ErrNotHeld. The node's fences go on above
	// its clock.
	Admit(ctx context.Context, r Record, maxTTL time.Duration) error
}

// Record is a node record.
type Record struct {
	Text   string        // as the store has it, compared as a whole
	Voting bool          // false: the node waits
	MaxTTL time.Duration // of a node that votes: the longest lease it grants
	Node   string        // as Result.Node
}

// An Admitter is a Driver to which an operator can give the word that no locks
// are active, so that its nodes vote at once.
type Admitter interface {
	Admit(ctx context.Context) error
}

// An Async is a Driver that can begin requests without a goroutine for each. done
// is called once: soon after the answer came, or after the request was given up,
// which may be long after ctx ended, and possibly before the method returned. It
// must not block. Apart from that they are Try and Release.
type Async interface {
	StartTry(ctx context.Context, r Request, done func(Result, error))
	StartRelease(ctx context.Context, r Request, done func(error))
}

// MaxLead is how far above its own clock a node accepts a proposed fence, in
// time: fences count microseconds. Proposals beyond are refused with
// FenceTooLow, unless they are at most this far above the fences that the node
// granted for the key, so that one client with a wrong clock cannot use up the
// numbers.
const MaxLead = 4 * time.Second

// Mode is how a key is held.
type Mode uint8

// The modes. The zero value is Exclusive.
const (
	Exclusive Mode = iota // one holder
	Shared                // any number of holders, or Request.Limit
)

// Request names one acquisition, and what it wants.
type Request struct {
	// Key is what is locked: 1 to 512 bytes of any value.
	Key string
	// Owner is the random id of this acquisition: 26 base32 characters,
	// fresh for each. Engines keep it beside Label and compare both.
	Owner string
	// Label describes the owner for people: JSON, at most MaxLabel bytes, see
	// Label. It stays the same for the life of an owner. To an engine it is
	// an opaque text.
	Label string
	// TTL is how long the store keeps a lease that nobody renews. Always
	// positive.
	TTL time.Duration
	// Patience is how long a place in line stays without a sign of life.
	// Positive when Queue is set.
	Patience time.Duration
	// Mode and Limit: Shared admits Limit holders at most, 0 for any number. An
	// owner names the same ones in all its requests, but for a Try with Convert
	// and what comes after it. Where peers name different limits for a key, the
	// smallest of those that hold it and of the one that asks counts.
	Mode  Mode
	Limit int
	// Convert, of a Try: the owner holds the key, Exclusive, and has it Shared
	// from now on, with the fence it has and without a moment in which nobody
	// holds it; those in line who can hold it too are let in. Asked again it is
	// the standing grant. An owner that holds nothing is granted nothing and joins
	// no line: it is refused. Fence is the fence held, if known, as in Renew.
	Convert bool
	// Queue: join the line when refused.
	Queue bool
	// Settled, of a Release: every Try of this owner was answered, so that none
	// can come later. The engine must not remember that it was released: the
	// same owner may ask again. An engine made of others passes it on only to
	// those that answered each Try.
	Settled bool
	// Fence proposes a fence (see Traits.Proposable): the node grants exactly
	// that one, and only when it is above every fence it granted for the key; of
	// one who is let in beside others that share it: every fence that it granted
	// Exclusive.
	// To the holder it answers with the fence held, unless Raise. 0 lets the
	// engine mint it. In Renew it is the fence held, if known: where a node that
	// can be proposed to has an earlier vote of the owner only, or one that was
	// handed over and not claimed, that is ErrNotHeld.
	Fence uint64
	// Raise, of a Try with a Fence: the holder's fence becomes the proposed one,
	// which must not be below it.
	Raise bool
	// Restore, of a Try with a Fence: the owner's lease stands on other nodes
	// with that fence, and this one lost it. The key is granted when it is free,
	// or when it can be shared, and had no larger fence as far as the node
	// remembers the key; of a Shared lease: none that was granted Exclusive,
	// since those who only read beside it may have come later. What the node knows
	// of others' fences only is not compared.
	Restore bool
	// End, of a Release: how the lease ended. See Result.Abandoned.
	End End
	// UpTo, of a Release: leave a lease whose fence is above. An engine made of
	// others gives votes back with it, so that a request that comes late takes
	// none that the owner was given since. 0: whatever the fence. Engines that
	// take no proposed fences need not look at it.
	UpTo uint64
	// Fences asks Try for so many fences in a row, for holders that take turns
	// on one grant; 0 means 1. The last is the proposed one, if any.
	Fences int
}

// End is how a lease ended, as far as its holder can say.
type End uint8

// The ends.
const (
	Finished   End = iota // its holder was done with what the key protects
	Unused                // nobody began to work under it
	Unfinished            // its holder was stopped, or lost it: what the key protects may need repair
)

// Result is the answer to a Try.
type Result struct {
	Granted bool
	// Fence is the fence of the grant. Of a refusal of a proposed fence it is one
	// that the next proposal must be above, as far as the node knows: always
	// with FenceTooLow, else 0 where that is not known.
	Fence uint64
	// Fences is how many the grant has, Fence being the last: at most as many
	// as were asked for, and only one when an earlier Try was granted. 0 means 1, or none
	// where Fence is 0.
	Fences int
	// TTL is the engine's word, counted from the start of this call: at least
	// this long the store keeps the lease. Not what was asked for.
	TTL time.Duration
	// Slot is the number of the place among Limit holders: 0 to Limit-1, the
	// smallest that no other holder has. 0 without a Limit.
	Slot int
	// Abandoned: a holder before this one did not finish, so that what the key
	// protects may need repair. A lease that expires, or is released Unfinished,
	// leaves that mark on the key; one that only read (Shared without Limit) does
	// not. Readers are told of the mark and leave it. Any other holder takes it:
	// when it finishes, or converts to Shared, the mark is gone; released
	// Unused it is back on the key, as is that of a handoff nobody claimed.
	Abandoned bool

	// Why a request was refused.
	Why Why
	// Ahead counts the places in line before this owner's (0: it is first, or
	// nobody waits), the holder not among them.
	Ahead int
	// Left is what is left of the holder's lease, 0 when that is not known or
	// the holder has no expiry; with NotVoting, of the node's wait.
	Left time.Duration
	// RetryIn is when this request, refused, may next succeed without a hint: when the
	// holder expires, for the first in line, or an open claim. 0: wait for a hint.
	RetryIn time.Duration
	// Holder is who has the key (any one of them when it is shared).
	Holder Holder
	// Node names the present life of the store: another one after a restart. Two
	// drivers with one Node are one store, and have one vote. Empty when the
	// engine does not know.
	Node string
}

// Why is the reason for a refusal.
type Why uint8

// The reasons.
const (
	Held        Why = iota // held by another, or a live line is before us
	FenceTooLow            // the proposed fence is not above what was granted, or too far above
	NotVoting              // the node may have forgotten leases and waits; see Node
	TTLTooLong             // above the largest TTL the node was admitted with: Result.TTL
	Released               // this owner was released; it says nothing of who has the key
)

// Renewal is the outcome of one request of a Renew.
type Renewal struct {
	// Err is nil when the lease or the place stands. ErrNotHeld: the owner
	// does not hold the key (or has no place: it was handed the key, or was
	// skipped; it should Try). Any other error: unknown.
	Err error
	// TTL as in Result.TTL, of a lease.
	TTL time.Duration
	// Wanted: somebody waits in line for this lease.
	Wanted bool
	// RetryIn as in Result.RetryIn, of a place.
	RetryIn time.Duration
}

// Info describes a key.
type Info struct {
	Key  string
	Held bool
	// Holder has the key; of several, the one of them that came first. Mode,
	// Limit and Slot in it say how it is held.
	Holder Holder
	// Fence is the holder's, 0 when not known.
	Fence uint64
	// Left is what is left of the holder's lease without renewal; negative
	// when it never expires.
	Left time.Duration
	// Holds counts the leases on the key; Holders lists them in the order of
	// their grants (Inspect only), the first that of Holder.
	Holds   int
	Holders []Lease
	// Waiters counts the live places in line; Line lists them in order
	// (Inspect only).
	Waiters int
	Line    []Holder
	// ByHand are statements, in the store's own language, with which a person
	// can look at the key (Inspect only).
	ByHand []string
	// Free are such statements, too, with which a person frees a key whose Holder
	// is foreign and never expires (Inspect only). They change nothing once the key
	// has become another's. Empty where that cannot be done so.
	Free []string
}

// Lease is one lease of a key that Info describes.
type Lease struct {
	Holder Holder
	Fence  uint64        // as Info.Fence
	Left   time.Duration // as Info.Left
}

// QueueKind says how waiting works.
type QueueKind uint8

// The kinds of line.
const (
	QueueNone    QueueKind = iota // no line: waiters race
	QueueHint                     // a line; its first is told that the key is free
	QueueHandoff                  // a line; a release makes its first the owner at once
)

// Fault is a set of faults.
type Fault uint8

// Faults that a held lease may survive: no second holder while it lasts.
const (
	StoreRestart Fault = 1 << iota // the store's process is killed and comes back with its data
	StoreLoss                      // the store forgets everything
	ClockStep                      // the clock that ends leases is stepped
)

// Traits is what an engine promises, as data: the suite, hasp, the documents'
// table and the command read this one struct.
type Traits struct {
	Engine     string // "redis", "sqlite", "memory": for error texts and HASP_STORE_KIND
	Queue      QueueKind
	Fencing    bool          // grants carry strictly rising fences
	Proposable bool          // honours Request.Fence
	Shared     bool          // honours Mode
	Slots      bool          // honours Limit and numbers Slot
	MinTTL     time.Duration // smallest TTL that means something here
	MaxTTL     time.Duration // 0: no bound
	Survives   Fault         // faults that never lead to two holders
}

// Class is the kind of trouble behind an error: all that hasp and the
// command's exit codes know of it.
type Class uint8

// The classes. Only ClassUnknown and ClassUnreachable are worth asking again.
const (
	ClassUnknown       Class = iota
	ClassUnreachable         // no answer, or too few nodes
	ClassDenied              // wrong password, missing permission
	ClassMisconfigured       // the store cannot do this; the key holds something else
	ClassFull                // the store takes no more data
	ClassReadOnly            // a replica, or a read-only file
)

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package voting has what only the nodes of a quorum do, and no other engine needs: to vote for a fence that the quorum
// proposes, and to grant nothing while leases may be lost.
package voting

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A Node is a [driver.Driver] that can be one of several in a quorum (package quorum). The
// quorum asks each node for its vote, and has the key with a majority of them.
// Try is Vote without a proposal; Release is Withdraw whatever the fence.
//
// A Node compares RenewRequest.Fence: ErrNotHeld when the owner has only an earlier
// vote here, or a vote that was handed to it and not claimed.
type Node interface {
	driver.Driver
	// Vote is Try with the fence that the quorum proposes.
	Vote(ctx context.Context, r VoteRequest) (driver.Result, error)
	// Withdraw is Release of a vote up to a given fence.
	Withdraw(ctx context.Context, r WithdrawRequest) error
}

// VoteRequest is the argument of Vote.
type VoteRequest struct {
	driver.TryRequest
	// Proposal is the fence to grant: the node grants exactly that one, and only
	// when it is above every fence that it granted for the key; to an owner that
	// joins others in sharing the key: above every fence that it granted Exclusive.
	// It answers the holder with the fence held, unless Raise is set. 0 lets the node
	// choose, as Try does. With Fences it is the last of them. With Convert it is 0.
	//
	// A refusal with FenceTooLow has in Result.Fence a fence that the next proposal
	// must exceed; a refusal for another reason has it, too, where it is known.
	Proposal uint64
	// Raise: the holder's fence becomes the proposed one, which must not be
	// smaller.
	Raise bool
	// Restore: the owner's lease stands on other nodes with that fence, and this
	// node lost it. The key is granted when it is free, or can be shared, and the
	// node remembers no larger fence of it; for a Shared lease: no larger fence
	// granted Exclusive, since readers beside it may have come later. What the
	// node knows about the fences of other keys only is not compared.
	Restore bool
}

// WithdrawRequest is what Withdraw is asked.
type WithdrawRequest struct {
	driver.ReleaseRequest
	// UpTo: do not withdraw a vote with a larger fence, so that a delayed request
	// cannot take a vote that the owner was given since; nor is the owner remembered
	// as released then, and the answer is ErrNotHeld. 0: whatever the fence.
	UpTo uint64
}

// The reasons of nodes, besides driver.WhyHeld and driver.WhyReleased.
const (
	FenceTooLow driver.Why = driver.WhyReleased + 1 + iota // the proposed fence is not above what was granted, or too far above
	NotVoting                                              // the node is held back: it may have lost leases; see Recorded
	TTLTooLong                                             // above the largest TTL that the node was admitted with: Result.TTL
)

// ErrNotVoting: the node may have lost leases, and grants nothing until they would have expired; see [Recorded].
var ErrNotVoting = errors.New("the node is held back: it may have lost leases")

// MaxFenceSkew is how far ahead of its own clock a node accepts a proposed fence
// (fences count microseconds), so that one client with a wrong clock cannot use up
// the numbers. Proposals beyond it are refused with FenceTooLow, unless they are at
// most this far above the fences that the node granted for the key.
const MaxFenceSkew = 4 * time.Second

// A Recorded is a [driver.Driver] of a store that keeps a node record, and grants nothing
// while it may have lost leases: after a restart, a flush, or when another server
// answers in its place. Everything that grants (a Try, a handoff) compares the
// record with the current run of the store; where they differ, a Try is refused with
// NotVoting (Result.Left: what is left of the wait), a Renew is an error, and a
// Release only deletes.
//
// This is the "delayed restart" of the Redlock algorithm, done by the clients: a
// client that has seen the same record of a node that is held back for long enough,
// by its own clock (internal/admission), admits the node.
type Recorded interface {
	driver.Driver
	// Record returns the node record. Where it is missing, or of another run of
	// the store, it first writes a new one, unlike any other, with which the node
	// is held back. ErrUnsupported: this driver was not configured to keep one.
	Record(ctx context.Context) (Record, error)
	// Admit lets the node vote, for leases of maxTTL at most, when its record
	// is exactly r and still of the current run of the store. Otherwise it
	// changes nothing and the error is ErrNotHeld. The node's next fences are above
	// its clock.
	Admit(ctx context.Context, r Record, maxTTL time.Duration) error
}

// Record is a node record.
type Record struct {
	Text   string        // as the store has it, compared as a whole
	Voting bool          // false: the node is held back
	MaxTTL time.Duration // with Voting: the longest lease that the node grants
	Run    string        // as Result.Run
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"time"
)

// A Node is a Driver that can be one of several in a quorum (package quorum),
// which asks it for its vote where it would ask a store of its own for the key.
// A Try is a Vote without a proposal, a Release a Withdraw of everything.
//
// A Node compares RenewRequest.Fence: where it has an earlier vote of the owner
// only, or one that was handed over and not claimed, that is ErrNotHeld.
type Node interface {
	Driver
	// Vote is Try, for the fence that the quorum proposes.
	Vote(ctx context.Context, r VoteRequest) (Result, error)
	// Withdraw is Release, of a vote up to a fence.
	Withdraw(ctx context.Context, r WithdrawRequest) error
}

// VoteRequest is what Vote is asked.
type VoteRequest struct {
	TryRequest
	// Proposal is the fence to grant: the node grants exactly that one, and only
	// when it is above every fence it granted for the key; of one who is let in
	// beside others that share it: every fence that it granted Exclusive. To the
	// holder it answers with the fence held, unless Raise. 0 lets the node choose,
	// as does a Try. With Fences it is the last of them. With Convert it is 0.
	//
	// A refusal with FenceTooLow names in Result.Fence one that the next proposal
	// must be above; a refusal for another reason does, too, where that is known.
	Proposal uint64
	// Raise: the holder's fence becomes the proposed one, which must not be below
	// it.
	Raise bool
	// Restore: the owner's lease stands on other nodes with that fence, and this
	// one lost it. The key is granted when it is free, or when it can be shared,
	// and had no larger fence as far as the node remembers the key; of a Shared
	// lease: none that was granted Exclusive, since those who only read beside it
	// may have come later. What the node knows of others' fences only is not
	// compared.
	Restore bool
}

// WithdrawRequest is what Withdraw is asked.
type WithdrawRequest struct {
	ReleaseRequest
	// UpTo: leave a vote whose fence is above, so that a request that comes late
	// takes none that the owner was given since. 0: whatever the fence.
	UpTo uint64
}

// Why a node refuses, beside Held and Released.
const (
	FenceTooLow Why = Released + 1 + iota // the proposed fence is not above what was granted, or too far above
	NotVoting                             // the node may have forgotten leases and waits; see Recorded
	TTLTooLong                            // above the largest TTL the node was admitted with: Result.TTL
)

// MaxFenceSkew is how far above its own clock a node accepts a proposed fence, in
// time: fences count microseconds. Proposals beyond are refused with
// FenceTooLow, unless they are at most this far above the fences that the node
// granted for the key, so that one client with a wrong clock cannot use up the
// numbers.
const MaxFenceSkew = 4 * time.Second

// An Async is a Node that can begin requests without a goroutine for each. done
// is called once: soon after the answer came, or after the request was given up,
// which may be long after ctx ended, and possibly before the method returned. It
// must not block. Apart from that they are Vote and Withdraw.
type Async interface {
	Node
	StartVote(ctx context.Context, r VoteRequest, done func(Result, error))
	StartWithdraw(ctx context.Context, r WithdrawRequest, done func(error))
}

// A Recorded is a Driver whose store keeps a node record, so that it grants nothing
// after it may have forgotten what it granted: after a restart, a flush, or
// when another server answers in its place. Every path that grants (a Try, a
// handoff) compares the record with the present life of the store; where they
// differ, a Try is refused with NotVoting (Result.Left: what is left of the wait),
// a Renew is an error, and a Release only deletes.
//
// The "delayed restart" of the Redlock algorithm, done by its clients: whoever
// has seen one and the same record that waits for long enough by a clock of its
// own (internal/admission) lets the node vote again.
type Recorded interface {
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

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package operator has what an engine may do for the operator of its store, and no lock needs.
package operator

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A Driver is a [driver.Driver] with operations.
type Driver interface {
	driver.Driver
	Operations() Operations
}

// Operations are what an engine does for an operator, as functions: nil is what it cannot do.
type Operations struct {
	// Examine looks at what the promises depend on: settings of the store, its version, the rights of this user. It leaves
	// nothing in the store. An error says that the store does not answer. hasp doctor shows the findings.
	Examine func(ctx context.Context) ([]Finding, error)

	// ListLeftovers yields what no clock of the store will ever end, of keys that start with prefix: a lease from which a person
	// took the expiry, a lock that another program wrote without one, what belonged to a lock that is gone. What will end by
	// itself, within its TTL, its patience or the minute for which the store remembers a key, is no leftover. hasp leaks shows them.
	//
	// They come in no particular order, possibly with duplicates. It changes nothing, must not slow other clients of the store
	// down, and may take its time for that. The sequence ends after the first error.
	//
	// held, unless it is nil, is called for each key that is held with an expiry, by the same goroutine, so that a large store is
	// walked only once: with the key and, of one holder, Holder, Fence and Left.
	ListLeftovers func(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[Leftover, error]

	// RemoveLeftover, which comes with ListLeftovers, removes exactly l, in one step with the comparison of what the store has
	// now with what was listed. It never removes what a holder renews. ErrNotHeld: it is no longer as it was listed, or it is
	// Live, and nothing was done. After any other error the outcome is unknown.
	//
	// stays is for how long it is kept nevertheless, 0: it is gone. What a holder may still need or
	// renew is given an expiry instead of being removed, and is a leftover no more.
	RemoveLeftover func(ctx context.Context, l Leftover) (stays time.Duration, err error)

	// Admit is for a driver of several nodes that may be held back: it declares that no locks are active, so that all vote at once.
	// Of a single store with a node record hasp asks Recorded.
	Admit func(ctx context.Context) error
}

// Of returns the operations of d: none, if it is no Driver of this package.
func Of(d driver.Driver) Operations {
	if o, ok := d.(Driver); ok {
		return o.Operations()
	}
	return Operations{}
}

// Finding is the result of one check of Operations.Examine.
type Finding struct {
	Level Level
	Check string // what was looked at, in a word
	Text  string // what was found, and what to do about it; it may repeat what a hostile store said
	// FencesRepeat: of a finding that is not ok, that fences may repeat or go back because
	// of it, so that storage which compares them may take a write that is too late.
	FencesRepeat bool
}

// Level is the severity of a finding.
type Level string

// The levels.
const (
	LevelOK   Level = "ok"
	LevelWarn Level = "warn" // locks are granted, but less is promised than could be
	LevelFail Level = "fail" // locks are not granted, or not safe
)

// largeRequest is the size of a request that takes several packets on every network.
const largeRequest = 8 << 10

// largeLimit is how long it may take, once a small one was answered.
const largeLimit = time.Second

// AskLarge is for Operations.Examine: ask sends a text to the store on a connection of its own, since nothing goes on behind what vanishes. The
// finding is nil unless a small text is answered, and a large one is not.
func AskLarge(ctx context.Context, ask func(ctx context.Context, text string) error) *Finding {
	if ask(ctx, "x") != nil {
		return nil // that is another trouble
	}
	limited, cancel := context.WithTimeout(ctx, largeLimit)
	defer cancel()
	err := ask(limited, strings.Repeat("x", largeRequest))
	late := net.Error(nil)
	if err == nil || ctx.Err() != nil || limited.Err() == nil && !(errors.As(err, &late) && late.Timeout()) {
		return nil
	}
	return &Finding{Level: LevelFail, Check: "mtu", Text: fmt.Sprintf("small requests are answered, one of %d KiB is not: large packets are lost on the way there or back. "+
		"Lower the MTU of this machine's interface, or let ICMP \"fragmentation needed\" pass", largeRequest>>10)}
}

// Leftover is one thing that Operations.ListLeftovers found. All of its texts are hostile.
type Leftover struct {
	Key  string // the lock's; "" of a LeftSidecar: not known
	Kind LeftoverKind
	Name string // what it is called in the store
	// Holder is the owner that has the lease, or had the place; the zero value of a LeftSidecar.
	Holder driver.Holder
	Fence  uint64 // of a lease, 0: not known
	// Live: a lease without an expiry that its holder renews, and will release. It is shown, since it stays
	// for ever if that holder dies, and never removed.
	Live bool
	// State is what RemoveLeftover compares. It is opaque, and valid for the driver's kind of store.
	State string
}

// Foreign reports whether another program than hasp wrote it: hasp cannot know whether its holder lives. Such
// a leftover is to be removed only when a person named its very key.
func (l Leftover) Foreign() bool { return l.Kind == LeftLease && l.Holder.Foreign }

// LeftoverKind says what a leftover is.
type LeftoverKind string

// The kinds of leftovers.
const (
	LeftLease   LeftoverKind = "lease"   // it has no expiry
	LeftPlace   LeftoverKind = "place"   // in a queue, a minute or more after the end of its patience
	LeftSidecar LeftoverKind = "sidecar" // what belonged to a lock that is gone, without an expiry
)

// Rest waits between two requests of [Operations], which the server's other clients should notice little of: for twice as long as the
// last one took, and for most at the longest. It returns ctx.Err() when ctx ends before that.
func Rest(ctx context.Context, took, most time.Duration) error {
	timer := time.NewTimer(min(2*took, most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

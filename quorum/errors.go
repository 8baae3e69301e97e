// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// VoteError says that too few nodes answered, or vote, to tell the outcome.
type VoteError struct {
	Votes, Need, Nodes int      // how many gave a vote, how many it takes, how many there are
	Names              []string // of the nodes that did not
	Errs               []error  // and why

	class driver.Class
}

func (e *VoteError) Error() string {
	var why strings.Builder
	for i, name := range e.Names {
		said := false
		for j := range i {
			said = said || e.Errs[j].Error() == e.Errs[i].Error()
		}
		if said {
			continue // with the first that had this error
		}
		if why.Len() > 0 {
			why.WriteString("; ")
		}
		why.WriteString(name)
		for j := i + 1; j < len(e.Names); j++ {
			if e.Errs[j].Error() == e.Errs[i].Error() {
				why.WriteString(", " + e.Names[j])
			}
		}
		why.WriteString(": " + e.Errs[i].Error())
	}
	return fmt.Sprintf("too few nodes vote (%d of %d, and it takes %d): %s", e.Votes, e.Nodes, e.Need, why.String())
}

// Unwrap returns the errors of the nodes.
func (e *VoteError) Unwrap() []error { return e.Errs }

// tooFew makes the error of an outcome that errs kept from being known, by node.
func (d *Driver) tooFew(errs [maxNodes]error) error {
	e := &VoteError{Need: d.need, Nodes: len(d.nodes), Votes: len(d.nodes), class: driver.ClassUnreachable}
	final := map[driver.Class]int{}
	for i, n := range d.nodes {
		if errs[i] == nil {
			continue
		}
		err := errs[i]
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			err = errSilent // no caller must take it for the end of its own context
		}
		e.Votes--
		e.Names, e.Errs = append(e.Names, n.name), append(e.Errs, err)
		c := n.drv.Classify(err)
		if errors.As(err, new(*tooLong)) {
			c = driver.ClassImpossible
		}
		if c != driver.ClassUnknown {
			final[c]++
		}
	}
	for c, count := range final {
		if count > len(d.nodes)-d.need { // whatever the others say
			e.class = c
		}
	}
	return e
}

// Classify says what kind of trouble an error of this driver is.
func (d *Driver) Classify(err error) driver.Class {
	if e := (*VoteError)(nil); errors.As(err, &e) {
		return e.class
	}
	if errors.Is(err, driver.ErrUnsupported) {
		return driver.ClassImpossible
	}
	if d.bad != nil || errors.As(err, new(*twinError)) {
		return driver.ClassMisconfigured
	}
	if errors.Is(err, voting.ErrNotVoting) {
		return driver.ClassUnreachable
	}
	return driver.ClassUnknown
}

// tooLong is a node that was admitted for shorter leases only.
type tooLong struct{ max, ttl time.Duration }

func (e *tooLong) Error() string {
	return fmt.Sprintf("it was admitted for leases of at most %v, and this one asks for %v: name the same largest TTL everywhere", e.max, e.ttl)
}

// outOfStep is a node that grants no fence near the proposed one.
type outOfStep struct{ proposal, floor uint64 }

func (e *outOfStep) Error() string {
	if e.floor < e.proposal {
		return fmt.Sprintf("it refuses the fence %d (%s), which is more than %v ahead of its clock: its clock is behind, or a client's or a node's is ahead",
			e.proposal, momentOf(e.proposal), voting.MaxFenceSkew)
	}
	return fmt.Sprintf("it refuses the fence %d (%s), and all up to %d (%s): its clock is ahead, or was when it granted that, or this machine's is behind",
		e.proposal, momentOf(e.proposal), e.floor, momentOf(e.floor))
}

// momentOf is when a clock made a fence.
func momentOf(fence uint64) string {
	return time.UnixMicro(int64(min(fence, math.MaxInt64))).UTC().Format("2006-01-02 15:04:05Z")
}

// twinError is two nodes that are one store.
type twinError struct{ a, b string }

func (e *twinError) Error() string {
	return fmt.Sprintf("redlock: %s and %s are one server, which would have two votes: name each server once", e.a, e.b)
}

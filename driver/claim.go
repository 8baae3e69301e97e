// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// MaxKey and MaxLabel are the largest key and label, in bytes.
const (
	MaxKey   = 512
	MaxLabel = 512
)

// OwnerLen is the length of an owner: 26 base32 characters, 130 bits.
const OwnerLen = 26

// Mode is how a key is held.
type Mode uint8

// The modes. The zero value is Exclusive.
const (
	Exclusive Mode = iota // one holder
	Shared                // any number of holders, or Claim.Limit
)

// String names the mode: exclusive, shared; mode 7 for one of a later version.
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return "mode " + strconv.Itoa(int(m))
}

// MaxTransit is how long a request may be under way at most.
const MaxTransit = 10 * time.Second

// ID names an owner on a key. Engines compare all of it.
type ID struct{ Key, Owner, Label string }

// ID returns the claim's ID.
func (c Claim) ID() ID { return ID{c.Key, c.Owner, c.Label} }

// Check returns nil for a valid claim, or an error that says what is wrong.
// It is ErrUnsupported for a mode that this version does not know.
func (c Claim) Check() error {
	switch {
	case c.Mode > Shared:
		return fmt.Errorf("%v: %w", c.Mode, ErrUnsupported)
	case c.Limit < 0:
		return fmt.Errorf("the limit is %d: it must be positive, or 0 for none", c.Limit)
	case !ValidOwner(c.Owner):
		return fmt.Errorf("owner %q is not %d base32 characters", c.Owner, OwnerLen)
	case len(c.Label) > MaxLabel:
		return fmt.Errorf("the label has %d bytes: the most is %d", len(c.Label), MaxLabel)
	}
	return CheckKey(c.Key)
}

// CheckKey returns nil for a valid key, or an error that says what is wrong.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("the key is empty: it must be 1 to %d bytes", MaxKey)
	case len(key) > MaxKey:
		return fmt.Errorf("the key has %d bytes: it must be 1 to %d", len(key), MaxKey)
	}
	return nil
}

// Check returns nil for a valid request, or an error that says what is wrong.
func (r TryRequest) Check() error {
	switch err := r.Claim.Check(); {
	case err != nil:
		return err
	case r.Convert && r.Mode != Shared:
		return errors.New("a lease can be converted to Shared only")
	case r.TTL <= 0:
		return fmt.Errorf("the TTL is %v: it must be positive", r.TTL)
	case r.Queue && r.Patience <= 0:
		return fmt.Errorf("the patience is %v: it must be positive", r.Patience)
	}
	return nil
}

// Check returns nil for a valid request, or an error that says what is wrong.
func (r RenewRequest) Check() error {
	switch err := r.Claim.Check(); {
	case err != nil:
		return err
	case !r.Queue && r.TTL <= 0:
		return fmt.Errorf("the TTL is %v: it must be positive", r.TTL)
	case r.Queue && r.Patience <= 0:
		return fmt.Errorf("the patience is %v: it must be positive", r.Patience)
	}
	return nil
}

// ValidOwner reports whether s has the form of an owner.
func ValidOwner(s string) bool {
	if len(s) != OwnerLen {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// End is how a lease ended, as far as its holder knows.
//
// A lease that expires, or is released EndUnfinished, leaves a mark on the key, which Result.Abandoned reports; a reader's lease (Shared
// without Limit) leaves none. Readers see the mark but do not clear it. Any other holder takes it over: when it finishes, or converts to
// Shared, the mark is cleared; released EndUnused, the mark is on the key again, as it is after a handoff that was not claimed. A handoff to
// a place that may enter (TryRequest.Enters) leaves it in any case.
type End uint8

// The ends.
const (
	EndFinished   End = iota // its holder completed its work
	EndUnused                // no work began under it; or the lease that ends may be of a late Try, which its holder knew nothing of
	EndUnfinished            // its holder was stopped, or lost it: what the key protects may need repair
)

// Why is the reason of a refusal.
type Why uint8

// The reasons of every engine; package voting has more.
const (
	WhyHeld     Why = iota // another owner holds the key, or waits for it in front of us
	WhyReleased            // this owner was released; it says nothing about the holder of the key
)

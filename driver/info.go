// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"strconv"
	"time"
)

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
	// Waiters counts the live places in the queue; Queue lists them in order
	// (Inspect only).
	Waiters int
	Queue   []Holder
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

// Holder is somebody who holds a key or waits for it.
type Holder struct {
	// Owner is the 26 characters, empty for a foreign holder.
	Owner string
	// Label is the text as stored; of a foreign holder the value it wrote, or
	// a part of it.
	Label string
	// Foreign: whoever holds the key does not speak hasp's form. It is
	// respected, shown, and never changed.
	Foreign bool
	// Since is when the key was granted by the store's clock; zero when the
	// engine does not know.
	Since time.Time
	// Mode and Limit are those it holds the key with, or waits for it with.
	Mode  Mode
	Limit int
	// Slot is its number among Limit holders; of one that waits, 0.
	Slot int
}

// Describe returns the label in parts, as far as it can be read. Since is the
// store's when it is known.
func (h Holder) Describe() Label {
	l, _ := ParseLabel(h.Label)
	if !h.Since.IsZero() {
		l.Since = h.Since
	}
	return l
}

// String names the holder for people, in one line that is safe to print:
// web-3 (pid 4121).
func (h Holder) String() string {
	switch l, ok := ParseLabel(h.Label); {
	case h.Foreign && h.Label == "":
		return "a foreign client"
	case h.Foreign:
		return "a foreign client (value " + strconv.Quote(clip(h.Label, 64)) + ")"
	case ok && l.Host != "" && l.PID != 0:
		return fmt.Sprintf("%s (pid %d)", Printable(l.Host), l.PID)
	case h.Owner != "":
		return Printable(h.Owner)
	default:
		return "someone"
	}
}

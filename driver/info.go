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
	Key          string
	Held         bool
	Holder       Holder        // has the key; of several, the first that was granted it. Its Mode, Limit and Slot say how it holds the key
	Fence        uint64        // the holder's; 0 when not known
	Left         time.Duration // how long the holder's lease lasts without renewal; negative when it never expires, 0 when not known
	Leases       int           // the number of leases on the key
	Holders      []Holding     // those leases, in the order of their grants, beginning with Holder's (Inspect only)
	Waiters      int           // the number of live places in the queue
	Queue        []Holder      // those places, in order (Inspect only)
	LookCommands []string      // statements, in the store's own language, with which a person can look at the key (Inspect only)
	// FreeCommands are statements with which a person can free the key when its Holder is foreign and never expires (Inspect only). They do nothing
	// once the key has another holder. Empty where no statement can do that.
	FreeCommands []string
}

// Unreadable is what a list says of a key beside which a record stands that this build cannot read: such a key hides no other.
func Unreadable(key, what string) Info {
	return Info{Key: key, Held: true, Leases: 1, Holder: Holder{Foreign: true, Label: "(" + what + ")"}}
}

// Holding is one lease of a key, as Info describes it.
type Holding struct {
	Holder Holder
	Fence  uint64        // as Info.Fence
	Left   time.Duration // as Info.Left
}

// Holder holds a key or waits for it.
type Holder struct {
	Owner   string    // its 26 characters; empty for a foreign holder
	Label   string    // the text as stored; for a foreign holder the value it wrote, or a part of it
	Foreign bool      // the key has a value that hasp did not write. It is respected, shown, and never changed
	Since   time.Time // when the key was granted, by the store's clock; zero when the engine does not know
	Mode    Mode      // with which it holds the key or waits for it
	Limit   int       // as Mode
	Slot    int       // its number among Limit holders; 0 for a waiter
}

// Describe returns the parts of the label, as far as it can be parsed. Since is the
// store's where the store knows it.
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
	switch l, _ := ParseLabel(h.Label); {
	case h.Foreign && h.Label == "":
		return "a foreign client"
	case h.Foreign:
		return "a foreign client (value " + strconv.Quote(clip(h.Label, 64)) + ")"
	case l.Host != "" && l.PID != 0:
		return fmt.Sprintf("%s (pid %d)", Printable(l.Host), l.PID)
	case h.Owner != "":
		return Printable(h.Owner)
	default:
		return "someone"
	}
}

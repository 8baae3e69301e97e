// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxKey and MaxLabel are the largest key and label, in bytes.
const (
	MaxKey   = 512
	MaxLabel = 512
)

// OwnerLen is the length of an owner: 26 base32 characters, 130 bits.
const OwnerLen = 26

// Label says who an owner is. It is written by whoever asks for the lock and
// read by people: treat all of it as hostile text.
type Label struct {
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	User   string `json:"user,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Process is opaque; with PID it names the process among all, so that the same
	// machine can say whether it has ended. Empty where that is not known.
	Process string    `json:"process,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when the acquisition began, by its own clock
}

// Encode returns the label as JSON of at most MaxLabel bytes, shortening the
// longest texts when it must.
func (l Label) Encode() string {
	for limit := MaxLabel; ; limit /= 2 {
		for _, s := range []*string{&l.Host, &l.User, &l.Reason, &l.Process} {
			*s = clip(strings.ToValidUTF8(*s, "\uFFFD"), limit)
		}
		b, err := json.Marshal(l)
		if err != nil { // a year that JSON cannot carry
			l.Since = time.Time{}
			continue
		}
		if len(b) <= MaxLabel {
			return string(b)
		}
	}
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ParseLabel reads what Encode wrote. ok is false for any other text.
func ParseLabel(s string) (l Label, ok bool) {
	if len(s) > MaxLabel || !strings.HasPrefix(s, "{") {
		return Label{}, false
	}
	if err := json.Unmarshal([]byte(s), &l); err != nil {
		return Label{}, false
	}
	return l, true
}

// ValidOwner says whether s has the form of an owner.
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

// Printable returns s with everything that a terminal might act on, or that
// would break a line, escaped as in a Go string.
func Printable(s string) string {
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

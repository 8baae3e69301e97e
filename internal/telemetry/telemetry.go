// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package telemetry says in words of a bounded number what metrics and traces say of an
// event: which class a key is of, and why a call failed. Both modules of telemetry use it,
// and hasp leaks, so that a lock has one name in all of them.
package telemetry

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Other is the class of keys that have no other: what is over a bound, or empty.
const Other = "other"

// MaxLabel bounds the bytes of a class.
const MaxLabel = 64

// Class is the class of a key unless a program says otherwise: what is before the first
// ':' or '/', and all of a key that has neither.
func Class(key string) string {
	for i := range len(key) {
		if key[i] == ':' || key[i] == '/' {
			return key[:i]
		}
	}
	return key
}

// Label returns class as others may show it: valid UTF-8 without what a terminal or a
// line-based format would interpret, of 1 to MaxLabel bytes. A class that is like that
// already stays as it is; an empty one is Other.
func Label(class string) string {
	if class == "" {
		return Other
	}
	safe := driver.Printable(cut(class))
	return cut(safe)
}

// cut returns the first MaxLabel bytes of s, without a character that they cut in two.
func cut(s string) string {
	if len(s) <= MaxLabel {
		return s
	}
	n := MaxLabel
	for n > MaxLabel-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Reasons are all values of Reason.
func Reasons() []string {
	return []string{"held", "timeout", "canceled", "closed", "lost", "unreachable", "held_back", "denied", "misconfigured", "full", "read_only", "login", "unknown"}
}

// Reason says in a word why a call ended without a lease: the error of event.Failed. Trouble
// with the store that kept a call waiting comes before what ended the wait: a time-out
// with a store that is away is "unreachable".
func Reason(err error) string {
	switch {
	case errors.Is(err, hasp.ErrClosed):
		return "closed"
	case errors.Is(err, hasp.ErrLost):
		return "lost"
	case errors.Is(err, voting.ErrNotVoting):
		return "held_back"
	}
	if e := (*hasp.Error)(nil); errors.As(err, &e) {
		switch e.Class {
		case driver.ClassUnreachable:
			return "unreachable"
		case driver.ClassDenied:
			return "denied"
		case driver.ClassMisconfigured, driver.ClassImpossible:
			return "misconfigured"
		case driver.ClassFull:
			return "full"
		case driver.ClassReadOnly:
			return "read_only"
		case driver.ClassLogin:
			return "login"
		case driver.ClassUnknown:
		}
	}
	end := err
	if e := (*hasp.WaitError)(nil); errors.As(err, &e) {
		end = e.End // what the store's client says of its own time-outs is no end of ours
	}
	switch {
	case errors.Is(end, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(end, context.Canceled):
		return "canceled"
	case errors.Is(err, hasp.ErrHeld):
		return "held"
	case errors.Is(err, hasp.ErrUnsupported):
		return "misconfigured"
	}
	return "unknown"
}

// Untold says that the error of event.Failed is an answer of the store, or the lack of one,
// that no event before it has told: that of a call which did not wait, or the last one of a
// call that waited.
func Untold(err error, reason string) bool {
	switch reason {
	case "unreachable", "held_back", "denied", "misconfigured", "full", "read_only", "login", "unknown":
		return !errors.As(err, new(*hasp.WaitError))
	}
	return false
}

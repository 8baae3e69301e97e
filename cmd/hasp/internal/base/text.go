// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/people"
)

// Text for people. What others wrote (keys, hosts, users, reasons) is hostile: it is
// printed escaped.

// Quote returns a key as it is safe to print.
func Quote(key string) string { return fmt.Sprintf("%q", key) }

// QuoteAll returns keys as they are safe to print.
func QuoteAll(keys []string) string {
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = Quote(key)
	}
	return strings.Join(quoted, ", ")
}

// KeyOf returns the key that an error of the library is about, else the other.
func KeyOf(err error, other string) string {
	if e := (*hasp.Error)(nil); errors.As(err, &e) && e.Key != "" {
		return e.Key
	}
	return other
}

// Share says how one holds a key, or wants to; nothing where it is alone with it.
func Share(h hasp.Holder, held bool) string {
	switch {
	case h.Mode == hasp.Exclusive:
		return ""
	case h.Limit == 0:
		return "shared"
	case held:
		return fmt.Sprintf("slot %d of %d", h.Slot, h.Limit)
	}
	return fmt.Sprintf("one of %d slots", h.Limit)
}

// Obstacle describes what keeps us from a key, after its name: the holder, since when, why, for how long.
func Obstacle(h hasp.Holder, left time.Duration, ahead int) string {
	if people.Unnamed(h) && ahead == 0 {
		return "has no holder, but the store does not give it to us yet"
	}
	if people.Unnamed(h) {
		return fmt.Sprintf("has no holder, but %s ahead of us", people.Count(ahead, "waiter is", "waiters are"))
	}
	l := h.Describe()
	s := "held"
	if h.Mode == hasp.Shared && !people.Kept(h) {
		s = "shared" // perhaps by more than the one we know of
	}
	if l.Since.IsZero() {
		s = "is " + s
	} else {
		s = "has been " + s + " " + people.For(l.Since, time.Now())
	}
	s += " by " + people.Named(h)
	when := "; if its holder dies, it is free in "
	if h.Mode == hasp.Shared || h.Foreign || ahead > 0 {
		when = "; unless it is renewed, its lease ends in "
	}
	if people.Ended(h) {
		when = "; its lease ends in "
	}
	if h.Limit > 0 {
		s += " with " + Share(h, true)
	}
	if l.Reason != "" {
		s += fmt.Sprintf(", reason %q", l.Reason)
	}
	switch {
	case left > 0:
		s += when + people.Short(left)
	case h.Foreign:
		s += "; it may have no expiry"
	}
	if ahead > 0 {
		s += fmt.Sprintf("; %s ahead of us", people.Count(ahead, "waiter", "waiters"))
	}
	return s
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/process"
)

// Text for people. What others wrote (keys, hosts, users, reasons) is hostile: it is
// printed escaped.

// quote returns a key as it is safe to print.
func quote(key string) string { return fmt.Sprintf("%q", key) }

// quoteAll returns keys as they are safe to print.
func quoteAll(keys []string) string {
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = quote(key)
	}
	return strings.Join(quoted, ", ")
}

// keyOf returns the key that an error of the library is about, else the other.
func keyOf(err error, other string) string {
	if e := (*hasp.Error)(nil); errors.As(err, &e) && e.Key != "" {
		return e.Key
	}
	return other
}

// modeName names a mode for people and for programs.
func modeName(m hasp.Mode) string {
	if m == hasp.Shared {
		return "shared"
	}
	return "exclusive"
}

// share says how one holds a key, or wants to; nothing where it is alone with it.
func share(h hasp.Holder, held bool) string {
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

// who names a holder: web-3 (pid 4211, user app).
func who(h hasp.Holder) string {
	l := h.Describe()
	if h.Foreign || l.Host == "" || l.PID == 0 || l.User == "" {
		return h.String()
	}
	return fmt.Sprintf("%s (pid %d, user %s)", driver.Printable(l.Host), l.PID, driver.Printable(l.User))
}

// ended says whether the process of a holder, or a waiter, is known to have ended.
// Its lease may be another's by now (Client.Adopt), or is left to expire.
func ended(h hasp.Holder) bool {
	l := h.Describe()
	host, err := os.Hostname()
	return !h.Foreign && err == nil && l.Host == host && process.Ended(l.Process, l.PID)
}

// nobody: the store named no holder.
func nobody(h hasp.Holder) bool { return h.Owner == "" && h.Label == "" && !h.Foreign }

// obstacle describes what keeps us from a key: who, since when, why, for how long.
func obstacle(h hasp.Holder, left time.Duration, ahead int) string {
	if nobody(h) && ahead == 0 {
		return "nobody holds it, but the store does not give it to us yet"
	}
	if nobody(h) {
		return fmt.Sprintf("nobody holds it, but %s ahead of us", count(ahead, "waiter is", "waiters are"))
	}
	l := h.Describe()
	s := "held"
	if h.Mode == hasp.Shared {
		s = "shared" // perhaps by more than the one we know of
	}
	if !l.Since.IsZero() {
		s += " for " + short(time.Since(l.Since))
	}
	s += " by " + who(h)
	if ended(h) {
		s += ", a process of this host that has ended"
	}
	if h.Limit > 0 {
		s += " with " + share(h, true)
	}
	if l.Reason != "" {
		s += fmt.Sprintf(", reason %q", l.Reason)
	}
	switch {
	case left > 0:
		s += fmt.Sprintf("; the store keeps it for %s more unless it is renewed", short(left))
	case h.Foreign:
		s += "; it may have no expiry"
	}
	if ahead > 0 {
		s += fmt.Sprintf("; %s ahead of us", count(ahead, "waiter", "waiters"))
	}
	return s
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// short returns a duration with as many digits as a person wants: 0.4s, 41s,
// 3m12s, 5h2m, 3d4h.
func short(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Truncate(time.Second).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

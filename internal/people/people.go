// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package people puts holders, modes and times into words for people, escaped, and into
// JSON for programs, which is not.
package people

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/process"
)

// ModeOf says in the column MODE how a key is held; of a semaphore, how many hold it.
func ModeOf(i hasp.Info) string {
	switch {
	case !i.Held:
		return "-"
	case i.Holder.Limit > 0:
		return fmt.Sprintf("%d of %d", i.Leases, i.Holder.Limit)
	}
	return i.Holder.Mode.String()
}

// HeldFor says in the column HELD for how long something has been so; "-" if that is not known.
func HeldFor(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return strings.TrimPrefix(For(since, now), "for ")
}

// Left says in the column LEFT what is left of a lease of which the store said so a while ago. 0: it does not say.
func Left(left, ago time.Duration) string {
	switch {
	case left < 0:
		return "never ends"
	case left == 0:
		return "?"
	}
	return Short(left - ago)
}

// Name names a holder: web-3 (pid 4211, user app).
func Name(h hasp.Holder) string {
	l := h.Describe()
	if h.Foreign || l.Host == "" || l.PID == 0 || l.User == "" {
		return h.String()
	}
	return fmt.Sprintf("%s (pid %d, user %s)", driver.Printable(l.Host), l.PID, driver.Printable(l.User))
}

// Kept says whether a holder keeps its key on purpose: its work has ended. See driver.Label.
func Kept(h hasp.Holder) bool {
	return !h.Foreign && h.Mode == hasp.Shared && h.Limit == 0 && strings.Contains(h.Label, `"kept"`) && h.Describe().Kept // a label is read slowly
}

// Fate says what has become of the process of a holder, or a waiter; nothing while it may work.
func Fate(h hasp.Holder) string {
	switch {
	case Kept(h):
		return "kept on purpose: its work has ended"
	case Ended(h):
		return "a process of this host that has ended"
	}
	return ""
}

// Named is Name, and the Fate.
func Named(h hasp.Holder) string { return strings.TrimSuffix(Name(h)+", "+Fate(h), ", ") }

// Ended says whether the process of a holder, or a waiter, is known to have ended, and does not keep its key on purpose.
// Its lease may be another's by now (Operator.Adopt), or is left to expire.
func Ended(h hasp.Holder) bool {
	host, err := os.Hostname()
	if err != nil || h.Foreign || !strings.Contains(h.Label, host) || Kept(h) { // a label is read slowly
		return false
	}
	l := h.Describe()
	return l.Host == host && process.Ended(l.Process, l.PID)
}

// Leftover says what is wrong with what was left over.
func Leftover(l operator.Leftover, now time.Time) string {
	who, since := Name(l.Holder), ""
	if at := l.Holder.Describe().Since; !at.IsZero() {
		since = " " + For(at, now)
	}
	if l.Kind == operator.LeftLease {
		who = Named(l.Holder)
	}
	switch {
	case l.Kind == operator.LeftPlace:
		return who + " waits in its queue, and has given no sign of life for a minute longer than it may"
	case l.Kind == operator.LeftSidecar:
		return fmt.Sprintf("%q has no expiry, and its lock is gone", l.Name)
	case l.Foreign():
		return fmt.Sprintf("held by %s; it has no expiry", who)
	case l.Live:
		return fmt.Sprintf("held%s by %s; it has no expiry, and was renewed within its TTL: it ends when its holder releases it", since, who)
	}
	return fmt.Sprintf("held%s by %s; it has no expiry, and nobody renews it", since, who)
}

// longWait is after how long a wait needs a person: by then the lease of a holder that died would have expired.
const longWait = time.Minute

// LongWait says whether a wait needs a person; not where since is not known.
func LongWait(since, now time.Time) bool { return !since.IsZero() && now.Sub(since) >= longWait }

// FirstSince is since when the first of the waiters has waited; zero: not known.
func FirstSince(queue []hasp.Holder) (first time.Time) {
	for _, h := range queue {
		if since := h.Describe().Since; first.IsZero() || !since.IsZero() && since.Before(first) {
			first = since
		}
	}
	return first
}

// Count is a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Ago says how long ago something was. A moment that this clock has not reached is of a clock that is ahead of it.
func Ago(at, now time.Time) string {
	if ahead := at.Sub(now); ahead > time.Second {
		return Short(ahead) + " ahead of this clock"
	}
	return Short(now.Sub(at)) + " ago"
}

// For says for how long something has been so.
func For(since, now time.Time) string {
	if text, ok := strings.CutSuffix(Ago(since, now), " ago"); ok {
		return "for " + text
	}
	return "since " + Ago(since, now)
}

// Short returns a duration with as many digits as a person wants: 0.4s, 41s,
// 3m12s, 5h2m, 3d4h.
func Short(d time.Duration) string {
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

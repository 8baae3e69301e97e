// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
)

// envHeld has the owners of the leases under which a command runs, those of each
// hasp run around it. Such a lease lasts until the command ends: a hasp within it
// that waits for the key would wait for ever.
const envHeld = "HASP_HELD"

// surrounding reads what a hasp around us left there.
func surrounding() []string {
	return slices.DeleteFunc(strings.Fields(os.Getenv(envHeld)), func(owner string) bool { return !driver.ValidOwner(owner) })
}

// look ends the wait for a key that is free only once a hasp around us has ended. It
// does not block.
func (j *job) look(key string) {
	if !j.looking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer j.looking.Store(false)
		around := append(slices.Clone(j.around), heldAround()...)
		if len(around) == 0 {
			return
		}
		ctx, cancel := base.Asking()
		defer cancel()
		info, err := j.from.Inspect(ctx, key)
		if err != nil {
			return // that is said where it matters, and each change of the wait looks again
		}
		if h, ok := barred(info, around, j.o.shared || j.o.slots > 0, j.o.slots); ok {
			select {
			case j.blocked <- j.own(key, h):
			default: // already reported
			}
		}
	}()
}

// own is the end of a wait for ourselves.
func (j *job) own(key string, h hasp.Holder) *base.Exit {
	return &base.Exit{Code: j.o.busyCode, Verdict: "busy", Message: fmt.Sprintf(
		"busy: %s is held by the hasp around this command, %s, which keeps it until this command has ended: waiting for it would never end", base.Quote(key), people.Name(h))}
}

// barred reports whether one of the leases around us keeps us from a key for as long
// as we wait, and its holder. limit is that of a semaphore, 0 for none.
func barred(info hasp.Info, around []string, shared bool, limit int) (first hasp.Holder, ok bool) {
	n, readers := 0, limit == 0
	for _, l := range info.Holders {
		h := l.Holder
		if !slices.Contains(around, h.Owner) {
			continue
		}
		if n++; n == 1 {
			first = h
		}
		if !shared || h.Mode == hasp.Exclusive {
			return h, true
		}
		if h.Limit > 0 && (limit == 0 || h.Limit < limit) {
			limit = h.Limit
		}
	}
	switch {
	case n == 0:
		return first, false
	case limit > 0 && n >= limit:
		return first, true
	}
	// A reader waits for a writer only, and that one for the reader around us.
	return first, readers && slices.ContainsFunc(info.Queue, func(h hasp.Holder) bool { return h.Mode == hasp.Exclusive })
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/people"
)

// Victim is an owner to take a key from.
type Victim struct {
	hasp.Holder
	fence uint64
	waits bool // it has a place in the queue, not the key
}

// WithOwner returns the holder or waiter with this owner.
func WithOwner(i hasp.Info, owner string) (v Victim, ok bool) {
	for _, l := range i.Holders {
		if l.Holder.Owner == owner {
			return Victim{l.Holder, l.Fence, false}, true
		}
	}
	for _, h := range i.Queue {
		if h.Owner == owner {
			return Victim{h, 0, true}, true
		}
	}
	return v, false
}

// Plan says what a break does.
func Plan(i hasp.Info, key string, v Victim) string {
	if v.waits {
		return fmt.Sprintf("this removes %s from the queue for %s; it may queue again", people.Name(v.Holder), Quote(key))
	}
	s := fmt.Sprintf("this takes %s from %s", Quote(key), people.Name(v.Holder))
	l := v.Describe()
	if !l.Since.IsZero() {
		s += ", who has held it " + people.For(l.Since, time.Now())
	}
	if l.Reason != "" {
		s += fmt.Sprintf(", reason %q", l.Reason)
	}
	work := ", but it may work on until it notices"
	if people.Kept(v.Holder) {
		work = "; its command has ended"
	}
	s += ". Its lease is lost" + work
	switch others := len(i.Holders) - 1; {
	case others > 0:
		s += fmt.Sprintf("; %s it", people.Count(others, "other keeps", "others keep"))
	case len(i.Queue) > 0:
		s += fmt.Sprintf("; the key goes to %s", people.Name(i.Queue[0]))
	}
	return s
}

// NotThatOwner is the end of a break of an owner that no longer has the key.
func NotThatOwner(i hasp.Info, key, owner string) *Exit {
	e := &Exit{Code: ExitBusy, Verdict: "busy"}
	switch {
	case i.Held:
		e.Message = fmt.Sprintf("nothing was done: %s no longer has %s, which %s", owner, Quote(key), Obstacle(i.Holder, i.Left, 0))
		if i.Holder.Foreign {
			e.Message += ". hasp never breaks the lease of another program; hasp show says how to look at it, and to free it, by hand"
		}
	default:
		e.Message = fmt.Sprintf("nothing was done: %s no longer has %s, and nobody else has it", owner, Quote(key))
	}
	return e
}

// TakeAway breaks the lease, or the place in the queue, of exactly this victim, and has
// that recorded. An error says what became of it.
func (l *Locks) TakeAway(ctx context.Context, log *audit.Log, via, key string, v Victim, reason string) *Exit {
	r := audit.Record{Event: audit.Break, Via: via, By: audit.Self(), Store: l.URL.String(), Reason: reason}
	err := log.Do(r.Victim(key, v.Holder, v.fence, v.waits), func() error { return l.Operator().Break(ctx, key, v.Owner) })
	var end *Exit
	unwritten := (*audit.UnwrittenError)(nil)
	switch lost := errors.As(err, &unwritten); {
	case err == nil:
		return nil
	case lost && !unwritten.Tried:
		return Failed("nothing was done: %v", unwritten)
	case errors.Is(err, hasp.ErrNotHeld):
		info, err := l.Inspect(ctx, key)
		if end = NotThatOwner(info, key, v.Owner); err != nil {
			end = &Exit{Code: ExitBusy, Verdict: "busy", Message: fmt.Sprintf("nothing was done: %s no longer has %s", v.Owner, Quote(key))}
		}
	case lost && errors.As(err, new(*hasp.Error)), !lost:
		end = Trouble(l.URL, err)
	default:
		return Failed("broke %s: taken from %s; but %v", Quote(key), people.Name(v.Holder), unwritten)
	}
	if unwritten != nil {
		end.Message += fmt.Sprintf("; and %v", unwritten)
	}
	return end
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Sentinel errors; test for them with errors.Is in every error of this package.
var (
	// ErrHeld: another owner holds the key, or waits for it in front of us:
	// errors.As with *HeldError names it. Or this very context holds it.
	ErrHeld = driver.ErrHeld
	// ErrLost: the lease ended before it was released: stop what it protected.
	ErrLost = driver.ErrLost
	// ErrNotHeld: there is nothing to release, extend, break or adopt.
	ErrNotHeld = driver.ErrNotHeld
	// ErrUnsupported: this engine cannot do that; another can.
	ErrUnsupported = driver.ErrUnsupported
	// ErrClosed: the client was closed.
	ErrClosed = driver.ErrClosed
)

// Error is the error of every operation of this package. It wraps the cause.
type Error struct {
	Op     string       // "lock", "lock 2 keys,", "try lock", "extend", "renew", "release", "hold", ...
	Key    string       // empty for operations on no single key
	Engine string       // "redis", "sqlite", ...
	Class  driver.Class // of trouble with the store; driver.ClassImpossible of a caller's mistake; driver.ClassUnknown otherwise
	Err    error
}

func (e *Error) Error() string {
	switch {
	case e.Key == "" && e.Engine == "":
		return fmt.Sprintf("hasp: %s: %v", e.Op, e.Err)
	case e.Key == "":
		return fmt.Sprintf("hasp: %s (%s): %v", e.Op, e.Engine, e.Err)
	}
	text := fmt.Sprint(e.Err)
	if e.Class != driver.ClassUnknown && !errors.As(e.Err, new(mistake)) && !strings.Contains(text, e.Engine) { // whose trouble: "i/o timeout" does not say
		text = e.Engine + ": " + text
	}
	return fmt.Sprintf("hasp: %s %s: %s", e.Op, quoteKey(e.Key), text)
}

// Unwrap returns the error inside.
func (e *Error) Unwrap() error { return e.Err }

// mistake is the caller's: a key, options or arguments that no store can do anything with.
type mistake struct{ error }

func (m mistake) Unwrap() error { return m.error }

// newMistake returns the error of an operation on no single key and no store.
func newMistake(op, format string, args ...any) error {
	return &Error{Op: op, Class: driver.ClassImpossible, Err: fmt.Errorf(format, args...)}
}

// quoteKey returns a key as it is safe to print, shortened when it is long.
func quoteKey(key string) string {
	const most = 128
	if len(key) > most {
		return fmt.Sprintf("%q... (%d bytes)", key[:most], len(key))
	}
	return fmt.Sprintf("%q", key)
}

// HeldError is a refusal: ErrHeld, with the owner that is in the way.
type HeldError struct {
	// Holder has the key. It is zero when the store did not say, or when the key is
	// free but others wait for it.
	Holder Holder
	// Left is what the holder's lease has left without renewal; 0 when that is
	// not known, or when it never expires.
	Left time.Duration
	// Ahead counts the waiters before us.
	Ahead int
}

func (e *HeldError) Error() string {
	s, label := "held by "+e.Holder.String(), e.Holder.Describe()
	if label.Process != "" && label.Process == self().Process && label.PID == self().PID { // perhaps a Release that was forgotten
		s = fmt.Sprintf("held by this process (%s, pid %d)", driver.Printable(label.Host), label.PID)
	}
	if label.Reason != "" {
		s += fmt.Sprintf(", reason %q", label.Reason)
	}
	if e.Left > 0 {
		s += "; unless it is renewed, its lease ends in " + short(e.Left)
	}
	if e.Ahead > 0 {
		s += fmt.Sprintf("; %d waiting ahead of us", e.Ahead)
	}
	return s
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// WaitError is a wait that ended without the key. errors.Is and errors.As look
// into both fields.
type WaitError struct {
	// End is what ended it: the error of its context, with its cause, or
	// ErrClosed.
	End error
	// Why is what had kept it waiting: *HeldError, or the trouble with the store.
	Why error
}

func (e *WaitError) Error() string { return fmt.Sprintf("gave up (%v): %v", e.End, e.Why) }

// Unwrap returns End and Why.
func (e *WaitError) Unwrap() []error { return []error{e.End, e.Why} }

// silentError is a call that had no answer in time.
type silentError struct {
	limit time.Duration
	why   error // of a call that was not sent, for its text alone
}

func (e *silentError) Error() string {
	if e.why != nil {
		return fmt.Sprintf("the store was not asked within %s: %v", short(e.limit), e.why)
	}
	return "the store did not answer within " + short(e.limit)
}

// Timeout tells it from an answer, as errors of package net do.
func (*silentError) Timeout() bool { return true }

// tooLongError is a TTL above what a store was admitted for.
type tooLongError struct{ ttl, most time.Duration }

func (e *tooLongError) Error() string {
	return fmt.Sprintf("the TTL is %v, and the store was admitted for leases of at most %v: ask for less, or configure the same largest TTL everywhere", e.ttl, e.most)
}

// endOf returns why a context ended, with its cause where that says more.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err { //nolint:errorlint // the very value: there is no more to say
		return err
	}
	if errors.Is(cause, ErrClosed) {
		return ErrClosed // the caller's context has not ended
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// short rounds a duration to what a person wants to know.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

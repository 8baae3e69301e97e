// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/wait"
)

// fail wraps an error once. nil stays nil.
func (c *core) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*Error); ok { //nolint:errorlint // one deeper in a cause is of another operation
		return err
	}
	return &Error{Op: op, Key: key, Engine: c.traits.Engine, Class: c.classify(err), Err: err}
}

func (c *core) classify(err error) Class {
	switch {
	case errors.As(err, new(*silentError)), errors.Is(err, driver.ErrNotVoting):
		return ClassUnreachable
	case errors.As(err, new(*tooLongError)), errors.Is(err, ErrUnsupported):
		return ClassImpossible
	}
	return c.drv.Classify(err)
}

// troubles is the one rule for errors, by class; docs/command.md has it in words. A store that gave this client
// a good answer before is not misconfigured: it fails over, its password is rotated, or somebody
// mends it. Before that, what a person must mend ends a wait at once, and the rest may pass by itself.
var troubles = map[Class]struct{ first, then wait.Trouble }{
	ClassUnknown:       {wait.Unclear, wait.Unclear},
	ClassUnreachable:   {wait.Away, wait.Away},
	ClassReadOnly:      {wait.Refuses, wait.Away},
	ClassFull:          {wait.Refuses, wait.Away},
	ClassLogin:         {wait.Refuses, wait.Refuses},
	ClassDenied:        {wait.Permanent, wait.Refuses},
	ClassMisconfigured: {wait.Permanent, wait.Refuses},
	ClassImpossible:    {wait.Permanent, wait.Permanent},
}

func (c *core) trouble(err error) wait.Trouble {
	t := troubles[c.classify(err)]
	if c.heard.Load() {
		return t.then
	}
	return t.first
}

// hears notes what came of a request: nil and ErrNotHeld are good answers.
func (c *core) hears(err error) {
	if (err == nil || errors.Is(err, ErrNotHeld)) && !c.heard.Load() {
		c.heard.Store(true)
	}
}

// answered says whether an error is the store's answer, if only a refusal.
func (c *core) answered(err error) bool {
	t := troubles[c.classify(err)].first
	return t == wait.Permanent || t == wait.Refuses
}

// settled says whether what came of a release is the store's answer for good. A store that never gave a good answer, and
// refused all that it was asked, has nothing of ours; lost: it may have, since a Try had no answer.
func (c *core) settled(err error, lost bool) bool {
	c.hears(err)
	switch {
	case err == nil || errors.Is(err, ErrNotHeld):
		return true
	case lost || c.heard.Load():
		return troubles[c.classify(err)].then == wait.Permanent
	}
	return c.answered(err)
}

// silentError is a call that had no answer in time.
type silentError struct {
	limit time.Duration
	why   error // of one that was not sent, for its text alone
}

func (e *silentError) Error() string {
	if e.why != nil {
		return fmt.Sprintf("the store was not asked within %s: %v", clock.Short(e.limit), e.why)
	}
	return "the store did not answer within " + clock.Short(e.limit)
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

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
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
	case errors.As(err, new(*tooLongError)):
		return ClassMisconfigured
	}
	return c.drv.Classify(err)
}

// worthAsking says whether an error may go away by itself.
func (c *core) worthAsking(err error) bool {
	class := c.classify(err)
	return class == ClassUnknown || class == ClassUnreachable
}

// silentError is a call that had no answer in time.
type silentError struct{ limit time.Duration }

func (e *silentError) Error() string {
	return "the store did not answer within " + shortDuration(e.limit)
}

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

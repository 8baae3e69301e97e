// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "errors"

// Sentinel errors; test for them with errors.Is. Package hasp has the same values
// under the same names.
var (
	// ErrHeld: another owner holds the key, or is ahead of us in the queue.
	ErrHeld = errors.New("held by another")
	// ErrLost: the lease ended before it was released.
	ErrLost = errors.New("lease lost")
	// ErrNotHeld: the owner neither holds the key nor waits for it.
	ErrNotHeld = errors.New("not held")
	// ErrUnsupported: this engine cannot do that.
	ErrUnsupported = errors.New("not supported by this engine")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("hasp's client is closed")
)

// NotSent wraps the error of a Try to say more: the request was not sent and never
// will be, so that it left nothing in the store. nil stays nil.
func NotSent(err error) error {
	if err == nil {
		return nil
	}
	return notSent{err}
}

// IsNotSent reports whether err was made by NotSent. An error that wraps such an
// error is not one itself: an engine that combines several drivers must know it of
// each of them.
func IsNotSent(err error) bool {
	_, ok := err.(notSent) //nolint:errorlint // the outermost alone
	return ok
}

type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

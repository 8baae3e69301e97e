// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "errors"

// The decisions a caller takes. Package hasp has the same values under the
// same names; test for them with errors.Is.
var (
	// ErrHeld: somebody else holds the key, or waits for it in front of us.
	ErrHeld = errors.New("held by another")
	// ErrLost: the lease ended before it was released.
	ErrLost = errors.New("lease lost")
	// ErrNotHeld: the owner does not hold the key, nor has a place in line.
	ErrNotHeld = errors.New("not held")
	// ErrUnsupported: this engine cannot do that.
	ErrUnsupported = errors.New("not supported by this engine")
	// ErrNotVoting: the node may have forgotten leases, and does nothing until
	// those are over; see Node.
	ErrNotVoting = errors.New("the node is held back: it may have forgotten leases")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client closed")
)

// NotSent returns err, of a Try, as one that says more: the request was not sent
// and never will be, so that the store has nothing of it. nil stays nil.
func NotSent(err error) error {
	if err == nil {
		return nil
	}
	return notSent{err}
}

// IsNotSent says whether err was made by NotSent. What wraps such an error does not
// say so by that: an engine made of others has to know it of all of them.
func IsNotSent(err error) bool {
	_, ok := err.(notSent) //nolint:errorlint // the outermost alone
	return ok
}

type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

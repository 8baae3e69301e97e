// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
)

// storeError is an error of the database with its class and with what to do.
type storeError struct {
	class  driver.Class
	err    error
	advice string
}

func (e *storeError) Error() string { return e.err.Error() + "; " + e.advice }
func (e *storeError) Unwrap() error { return e.err }

// lockedError: the file was somebody else's for as long as we waited.
type lockedError struct {
	waited time.Duration
	err    error // the database's, or the context's
}

func (e *lockedError) Error() string {
	return fmt.Sprintf("the database stayed locked for %v (%v)", e.waited.Round(time.Millisecond), e.err)
}
func (e *lockedError) Unwrap() error { return e.err }

// errNoHead: somebody emptied the table.
var errNoHead = errors.New("the one row of hasp_meta is missing")

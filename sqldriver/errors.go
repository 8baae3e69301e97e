// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
)

// storeError is an error of the database with its class and with what to do.
type storeError struct {
	class  driver.Class
	err    error
	advice string
}

func (e *storeError) Error() string {
	// One driver opens a file by running its settings, which are not what failed.
	text := strings.Replace(e.err.Error(), "invalid _pragma: sqlite3: ", "", 1)
	if e.advice == "" {
		return text
	}
	return text + "; " + e.advice
}
func (e *storeError) Unwrap() error { return e.err }

// lockedError: another process had the file locked for as long as we waited.
type lockedError struct {
	waited time.Duration
	err    error // the database's, or the context's
}

func (e *lockedError) Error() string {
	return fmt.Sprintf("the database stayed locked for %v", e.waited.Round(time.Millisecond))
}
func (e *lockedError) Unwrap() error { return e.err }

// slowError: the disk did not answer in time.
type slowError struct {
	waited time.Duration
	err    error // the context's
}

func (e *slowError) Error() string {
	return fmt.Sprintf("the disk has not finished a read or write for %v", e.waited.Round(time.Millisecond))
}
func (e *slowError) Unwrap() error { return e.err }

// errNoHead: somebody emptied the table.
var errNoHead = errors.New("the one row of hasp_meta is missing")

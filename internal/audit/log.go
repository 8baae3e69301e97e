// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Syslog is the destination that stands for the system's log.
const Syslog = "syslog"

// Log is where records go. It is safe for concurrent use, also by several processes. A
// nil Log keeps no record, and never fails.
type Log struct {
	to    string
	write func(line []byte) error
}

// Open returns the log at a destination: "syslog", or the name of a file, which is
// created with mode 0600 when it is missing, and never cut. No destination, no log: nil.
// An error says that nothing can be written there.
func Open(to string) (*Log, error) {
	switch to {
	case "":
		return nil, nil
	case Syslog:
		l := &Log{to: "the system's log", write: toSyslog}
		return l, l.unwritten(trySyslog())
	}
	path, err := filepath.Abs(to) // the working directory may change
	if err != nil {
		return nil, err
	}
	l := &Log{to: path, write: func(line []byte) error { return appendTo(path, line) }}
	return l, l.unwritten(appendTo(path, nil))
}

// appendTo opens the file for each record: whatever rotates it needs no signal.
func appendTo(path string, line []byte) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is no plain file") // a pipe without a reader would block
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if len(line) > 0 {
		if _, err = f.Write(line); err == nil { // one write: no other record gets in between
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

// Write appends a record.
func (l *Log) Write(r Record) error {
	if l == nil {
		return nil
	}
	r.Time = time.Now().UTC()
	if r.ID == "" {
		r.ID = newID()
	}
	line, err := r.line()
	if err == nil {
		err = l.write(line)
	}
	return l.unwritten(err)
}

// Do records that act is about to be done, does it, and records how that ended. Without
// the first record nothing is done. The error is act's, or an *UnwrittenError, or both.
func (l *Log) Do(r Record, act func() error) error {
	r.ID, r.Outcome = newID(), Begun
	if err := l.Write(r); err != nil {
		return err
	}
	err := act()
	switch {
	case err == nil:
		r.Outcome = Done
	case errors.Is(err, driver.ErrNotHeld):
		r.Outcome = NotHeld
	default:
		r.Outcome, r.Error = Unknown, err.Error()
	}
	if unwritten := (*UnwrittenError)(nil); errors.As(l.Write(r), &unwritten) {
		unwritten.Tried = true
		return errors.Join(err, unwritten)
	}
	return err
}

// UnwrittenError says that a record could not be written.
type UnwrittenError struct {
	Tried bool // what it is about was tried nevertheless; else nothing was done
	To    string
	Err   error
}

func (e *UnwrittenError) Error() string {
	return fmt.Sprintf("the audit record cannot be written to %s: %v", e.To, e.Err)
}

// Unwrap returns why not.
func (e *UnwrittenError) Unwrap() error { return e.Err }

func (l *Log) unwritten(err error) error {
	if err == nil {
		return nil
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) { // it is named already
		err = path.Err
	}
	return &UnwrittenError{To: l.to, Err: err}
}

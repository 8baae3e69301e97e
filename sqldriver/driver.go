// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A Driver keeps locks in one database. Make one with [NewSQLite]; it is safe for
// concurrent use.
type Driver struct {
	db  *sql.DB
	dia dialect
	bad error // why this cannot work; see Check

	writes writer
	reads  chan struct{}  // a token for each read under way
	under  sync.WaitGroup // reads under way, their callers gone or not

	endLimit time.Duration // how long a read may take to end after its context
	fileWait time.Duration // how long a transaction waits for the file's lock

	mu       sync.Mutex
	prepared [queries]*sql.Stmt
	asked    [queries]int // how often, while it was not prepared
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Node   = (*Driver)(nil)
)

// maxReads bounds the connections that reads take from the caller's pool. One
// more is taken for writing.
const maxReads = 4

func newDriver(db *sql.DB, dia dialect) *Driver {
	d := &Driver{db: db, dia: dia, reads: make(chan struct{}, maxReads), endLimit: 50 * time.Millisecond, fileWait: fileWait}
	d.writes.d = d
	if db == nil {
		d.bad = errors.New("sqldriver: the *sql.DB is nil")
	}
	return d
}

// Check returns an error if the constructor's arguments are invalid, without I/O.
// What only the database knows (its settings, its version) is checked on first use.
func (d *Driver) Check() error { return d.bad }

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return d.dia.traits() }

// Watch returns no channel: see the package's comment on waiting.
func (d *Driver) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	if err := valid(c.Check()); err != nil {
		return nil, err
	}
	return nil, ctx.Err()
}

// Classify implements [driver.Driver].
func (d *Driver) Classify(err error) driver.Class {
	var se *storeError
	switch {
	case errors.As(err, &se):
		return se.class
	case d.bad != nil && errors.Is(err, d.bad):
		return driver.ClassMisconfigured
	}
	return driver.ClassUnknown
}

// Close waits for what is still running on behalf of callers that have gone, and
// closes the statements that the driver prepared. The *sql.DB stays open. It gives up
// after five seconds, with an error, when the disk does not answer.
func (d *Driver) Close() error {
	d.writes.close()
	over := make(chan struct{})
	go func() {
		d.writes.idle.Wait()
		d.under.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(fileWait):
		return errors.New("sqldriver: close: the database has not finished a call whose caller has gone")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for q, stmt := range d.prepared {
		if stmt != nil {
			errs = append(errs, stmt.Close())
			d.prepared[q] = nil
		}
	}
	return errors.Join(errs...)
}

// stmt returns a prepared statement. The tables must exist.
//
// Preparing takes a connection of the pool, and whoever has the only one may
// be about to ask for a statement: so nothing is locked meanwhile.
func (d *Driver) stmt(ctx context.Context, q query) (*sql.Stmt, error) {
	if stmt := d.known(q); stmt != nil {
		return stmt, nil
	}
	stmt, err := d.db.PrepareContext(ctx, d.dia.text(q))
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.prepared[q] != nil { // another goroutine was faster
		return d.prepared[q], stmt.Close()
	}
	d.prepared[q] = stmt
	return stmt, nil
}

// known returns a statement that was prepared, or nil.
func (d *Driver) known(q query) *sql.Stmt {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.prepared[q] == nil {
		d.asked[q]++
	}
	return d.prepared[q]
}

// prepare prepares the statements that transactions asked for again and again. It does so
// before one begins, which then needs no second connection of the pool. A program that
// runs two or three transactions, as hasp run does, prepares none.
func (d *Driver) prepare(ctx context.Context) error {
	d.mu.Lock()
	asked := d.asked
	d.mu.Unlock()
	for q, times := range asked {
		if times <= 3 {
			continue
		}
		if _, err := d.stmt(ctx, query(q)); err != nil {
			return err
		}
	}
	return nil
}

// read runs f, which reads outside of a transaction, and returns when it has
// finished or ctx has ended, whichever is first: a disk that hangs holds up a
// goroutine of ours, not the caller, and never more than maxReads of them.
//
// After an error f may still be running: what it sets must not be looked at.
func (d *Driver) read(ctx context.Context, f func(ctx context.Context) error) error {
	if d.bad != nil {
		return d.bad
	}
	select {
	case d.reads <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	d.under.Go(func() {
		defer func() { <-d.reads }()
		err := d.dia.connect(ctx, d)
		if err == nil {
			err = d.reopen(ctx, f(ctx))
		}
		done <- err
	})
	var err error
	began := time.Now()
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done: // it ends with ctx, too, and may know what it waited for
		case <-time.After(d.endLimit):
			err = ctx.Err()
		}
	}
	switch {
	case err != nil && ctx.Err() != nil && isLocked(err):
		err = &lockedError{waited: time.Since(began), err: ctx.Err()}
	case err != nil && ctx.Err() != nil: // interrupted, in SQLite's words
		err = &slowError{waited: time.Since(began), err: ctx.Err()}
	}
	return d.explain(err)
}

func (d *Driver) explain(err error) error {
	var se *storeError
	if err == nil || errors.As(err, &se) {
		return err
	}
	return d.dia.explain(err)
}

// valid returns what is wrong with a request, as this engine's error.
func valid(err error) error {
	if err != nil {
		return fmt.Errorf("sqldriver: %w", err)
	}
	return nil
}

// limit is how many may hold the key with c, 0 for any number, or for c alone.
func limit(c driver.Claim) int {
	if c.Mode == driver.Shared {
		return c.Limit
	}
	return 0
}

// The rhythm of waiting; see nextLook.
const (
	lookFirst = 5 * time.Millisecond
	lookLate  = 25 * time.Millisecond
	lookLast  = time.Second
)

// nextLook is when a waiter should ask again. There are no hints, so it polls: soon
// for a key that was granted a moment ago, every 25 ms for one that has been held for
// long. It waits longer the more are before it, since each of them must ask first; so
// the sum of all polls grows with the logarithm of the queue, and the last of many
// still asks soon after its turn has come. For each before it, it waits for as long as it took to ask, at least: else many
// waiters use up a pool of connections, or a slow server, that the next holder needs.
func nextLook(ahead int, held, left, took time.Duration) time.Duration {
	in := min(max(held/4, lookFirst), lookLate)
	if ahead > 0 {
		in = max(in, took) * time.Duration(ahead+1)
	}
	if ahead == 0 && left > 0 {
		in = min(in, left)
	}
	return max(min(in, lookLast), time.Millisecond)
}

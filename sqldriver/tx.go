// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"time"

	"github.com/hasplock/hasp/driver"
)

// head is the row of hasp_meta.
type head struct {
	version int
	boot    string
	before  string
	clock   int64
	journal string // not of the row: the connection's journal_mode
	floors
	node string // a random name of the file
	wall int64  // the wall clock at clock, in microseconds; 0: not known
}

func (h *head) fields() []any {
	return []any{&h.version, &h.boot, &h.before, &h.clock, &h.journal, &h.newest, &h.old, &h.mid, &h.at, &h.node, &h.wall}
}

// A tx is a transaction beside which nobody writes.
type tx struct {
	d   *Driver
	sql *sql.Tx
	ctx context.Context // ends the transaction

	rules      // its clock was read while the file was ours already
	was   head // as read
	head  head // as it will be written
}

// A statement that is asked for the first time is not prepared yet, see Driver.prepare.
func (t *tx) exec(q query, args ...any) (sql.Result, error) {
	if s := t.d.known(q); s != nil {
		return t.sql.StmtContext(t.ctx, s).ExecContext(t.ctx, args...)
	}
	return t.sql.ExecContext(t.ctx, t.d.dia.text(q), args...)
}

func (t *tx) row(q query, args ...any) *sql.Row {
	if s := t.d.known(q); s != nil {
		return t.sql.StmtContext(t.ctx, s).QueryRowContext(t.ctx, args...)
	}
	return t.sql.QueryRowContext(t.ctx, t.d.dia.text(q), args...)
}

func (t *tx) rows(q query, args ...any) (*sql.Rows, error) {
	if s := t.d.known(q); s != nil {
		return t.sql.StmtContext(t.ctx, s).QueryContext(t.ctx, args...)
	}
	return t.sql.QueryContext(t.ctx, t.d.dia.text(q), args...)
}

// Rows that have expired are kept for a while, and then deleted, a few at a time, by
// whoever writes: nothing is permanent, and no clean-up job is needed.
const (
	// goneFor is how long a released owner is refused: longer than a request
	// of its can be under way, see fileWait.
	goneFor = driver.LateRequest
	// keepFence is how long the newest fence of a key is remembered after the
	// key was held: a minute, and as much longer as it may be ahead of the
	// clock. The mark of a lease that was not released lasts as long.
	keepFence = time.Minute + driver.MaxFenceSkew
)

// sweep deletes more rows than were made, so that expired ones cannot pile up.
func (t *tx) sweep() error {
	if t.rowsMade == 0 {
		return nil
	}
	for _, s := range []struct {
		kind string
		keep time.Duration
	}{{kindHeld, keepFence}, {kindQueued, 0}, {kindGone, 0}} {
		if _, err := t.exec(qSweep, s.kind, int64(t.up-s.keep), 2*t.rowsMade+8); err != nil {
			return err
		}
	}
	return nil
}

// rollback takes back everything. It does so even when ctx has ended, and
// nothing is to be done when it fails: the file's lock goes with the
// connection.
func (t *tx) rollback() { _ = t.sql.Rollback() }

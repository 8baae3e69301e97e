// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/hasplock/hasp/driver"
)

// Wait is what [LockRow] and [LockAdvisory] do when another transaction has the lock.
type Wait int

// The ways to wait.
const (
	WaitForLock Wait = iota // until it is free, or the context ends
	NoWait                  // fail with hasp.ErrHeld
	SkipLocked              // take the first row that is free; hasp.ErrHeld when there are rows, and none is
)

// LockRow locks a row of the caller's own in the caller's own transaction, which holds it
// until it ends, and reads it. It is no lease: nothing of package hasp is used, nothing
// expires, and no clock matters. For data in that database it is the strongest lock there
// is, since the work and the lock are committed or rolled back together.
//
// query is a SELECT without FOR UPDATE, which is added to it; of its rows the first one is locked
// and scanned into dest, for which nil means nothing. Say so with LIMIT 1 where there are
// more, or all are locked.
//
// The error is hasp.ErrHeld when another transaction has the row (or keeps it for
// longer than lock_timeout), sql.ErrNoRows when there is none, hasp.ErrUnsupported for SQLite,
// which locks no rows; others are the database's. In PostgreSQL a transaction in which NoWait was refused
// can only be rolled back: SkipLocked does not have that effect.
//
//	var balance int
//	err := sqldriver.LockRow(ctx, tx, sqldriver.NoWait, []any{&balance}, "SELECT balance FROM account WHERE id = $1", id)
func LockRow(ctx context.Context, tx *sql.Tx, wait Wait, dest []any, query string, args ...any) error {
	text := query + " FOR UPDATE"
	switch wait {
	case WaitForLock:
	case NoWait:
		text += " NOWAIT"
	case SkipLocked:
		text += " SKIP LOCKED"
	default:
		return fmt.Errorf("sqldriver: lock a row: there is no Wait of %d", wait)
	}
	found, err := firstRow(ctx, tx, dest, text, args)
	if err == nil && !found {
		err = sql.ErrNoRows
		if wait == SkipLocked {
			if found, e := firstRow(ctx, tx, nil, query, args); found || e != nil {
				err = errors.Join(driver.ErrHeld, e)
			}
		}
	}
	return rowError("a row", err)
}

// LockAdvisory takes PostgreSQL's advisory lock of a key in the caller's transaction,
// which holds it until it ends: a lock without a row, and otherwise as [LockRow]. SkipLocked is
// NoWait. The number of the lock is a hash of the key's bytes.
//
// Advisory locks of a session (pg_advisory_lock, and MySQL's GET_LOCK) are none of this
// package's: behind a pooler that gives each transaction another session, the lock stays with a session that others
// use next and are granted it as well, and the release may be carried out in another one, and fail. A connection that is lost
// frees the lock without its holder's knowledge, and a standby that takes over knows none of them. A lock of a transaction, as
// here and with LockRow, is kept by the pooler as long as the transaction.
func LockAdvisory(ctx context.Context, tx *sql.Tx, wait Wait, key string) error {
	sum := sha256.Sum256([]byte(key))
	number := int64(binary.BigEndian.Uint64(sum[:]))
	if wait == WaitForLock {
		_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", number)
		return rowError(fmt.Sprintf("%q", key), err)
	}
	var got bool
	err := tx.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock($1)", number).Scan(&got)
	if err == nil && !got {
		err = driver.ErrHeld
	}
	return rowError(fmt.Sprintf("%q", key), err)
}

// firstRow reads the first row into dest.
func firstRow(ctx context.Context, tx *sql.Tx, dest []any, text string, args []any) (found bool, err error) {
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	if !rows.Next() {
		return false, rows.Err()
	}
	if dest != nil {
		if err := rows.Scan(dest...); err != nil {
			return false, err
		}
	}
	return true, rows.Close()
}

// rowError says what became of a lock, in hasp's errors.
func rowError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrHeld) || errors.Is(err, sql.ErrNoRows):
	case sqlState(err) == "55P03" || in(mysqlNumber(err), 3572, 1205): // MariaDB has one number for both
		err = fmt.Errorf("%w: %w", driver.ErrHeld, err)
	case sqlState(err) == "" && strings.Contains(err.Error(), `near "UPDATE": syntax error`):
		err = fmt.Errorf("SQLite: %w: %w", driver.ErrUnsupported, err)
	}
	return fmt.Errorf("sqldriver: lock %s: %w", what, err)
}

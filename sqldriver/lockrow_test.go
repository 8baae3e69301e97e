// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// Rule: a row that another transaction has locked is held, or passed over, or waited for;
// and whoever waited for it reads what the other wrote.
func lockRow(t *testing.T, d database) {
	db := d.pool(t)
	run(t, db, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
	run(t, db, "INSERT INTO account VALUES (1, 100), (2, 200)")
	var id, balance int
	const one, any1, none = "SELECT balance FROM account WHERE id = 1", "SELECT id FROM account ORDER BY id LIMIT 1", "SELECT id FROM account WHERE id = 3"
	holder := begin(t, db)
	must(t, LockRow(t.Context(), holder, NoWait, []any{&balance}, one))
	failIf(t, balance != 100, "the balance is %d", balance)
	for name, c := range map[string]struct {
		wait  Wait
		query string
		want  error
	}{
		"held":          {NoWait, one, driver.ErrHeld},
		"all are held":  {SkipLocked, one, driver.ErrHeld},
		"none to lock":  {NoWait, none, sql.ErrNoRows},
		"none to skip":  {SkipLocked, none, sql.ErrNoRows},
		"none to await": {WaitForLock, none, sql.ErrNoRows},
	} {
		if err := LockRow(t.Context(), begin(t, db), c.wait, nil, c.query); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := LockRow(t.Context(), begin(t, db), Wait(7), nil, one); err == nil {
		t.Error("a Wait of 7 is one")
	}
	must(t, LockRow(t.Context(), begin(t, db), SkipLocked, []any{&id}, any1))
	failIf(t, id != 2, "row %d is free, want 2", id)
	waits := begin(t, db)
	done := make(chan error, 1)
	go func() { done <- LockRow(context.Background(), waits, WaitForLock, []any{&balance}, one) }()
	_, err := holder.ExecContext(t.Context(), "UPDATE account SET balance = 50 WHERE id = 1")
	must(t, err)
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	must(t, holder.Commit())
	if err := <-done; err != nil || balance != 50 {
		t.Errorf("%v; the balance is %d", err, balance)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := LockRow(ctx, begin(t, db), WaitForLock, nil, one); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("when its context ended: %v", err)
	}
}

// Rule: an advisory lock is the transaction's, and one for each key.
func lockAdvisory(t *testing.T, d database) {
	if !d.postgres() {
		t.Skip("it is PostgreSQL's")
	}
	db := d.pool(t)
	holder, other := begin(t, db), begin(t, db)
	must(t, LockAdvisory(t.Context(), holder, WaitForLock, "k\x00\xff"))
	for _, wait := range []Wait{NoWait, SkipLocked} {
		if err := LockAdvisory(t.Context(), other, wait, "k\x00\xff"); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%v", err)
		}
	}
	must(t, LockAdvisory(t.Context(), other, NoWait, "another"))
	must(t, holder.Commit())
	must(t, LockAdvisory(t.Context(), other, NoWait, "k\x00\xff"))
}

// Rule: SQLite locks no rows, and says so.
func TestLockRowOfSQLite(t *testing.T) {
	db := openFile(t, newFile(t))
	run(t, db, "CREATE TABLE account (id INTEGER PRIMARY KEY)")
	if err := LockRow(t.Context(), begin(t, db), NoWait, nil, "SELECT id FROM account"); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

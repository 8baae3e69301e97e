// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hasplock/hasp/fence"
)

// Rule: of two transactions the one with the smaller fence changes nothing after the other.
func fenceGuard(t *testing.T, d database) {
	dialect := fence.MySQL
	if d.postgres() {
		dialect = fence.Postgres
	}
	guardRows(t, d.pool(t), dialect)
	if d.kind == "mysql" { // UPDATE and INSERT report other numbers of rows
		d.dsn += "?clientFoundRows=true"
		if strings.Contains(strings.TrimSuffix(d.dsn, "?clientFoundRows=true"), "?") {
			t.Fatalf("the address has parameters: %s", d.dsn)
		}
		guardRows(t, d.pool(t), dialect)
	}
	guardAtOnce(t, d.pool(t), dialect)
}

func TestFenceGuardOfSQLite(t *testing.T) {
	t.Parallel()
	guardRows(t, openFile(t, newFile(t)), fence.SQLite)
	guardAtOnce(t, openFile(t, newFile(t)), fence.SQLite)
}

// guardRows has a guard of each kind judge a few fences, in a transaction each.
func guardRows(t *testing.T, db *sql.DB, dialect *fence.Dialect) {
	run(t, db, "DROP TABLE IF EXISTS hasp_guard")
	run(t, db, "DROP TABLE IF EXISTS account")
	run(t, db, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
	run(t, db, "INSERT INTO account VALUES (7, 100)")
	table, column := fence.Table(dialect, ""), fence.Column(dialect, "account", "id", "fence")
	for _, g := range []*fence.SQL{table, column} {
		tx := begin(t, db)
		if err := g.Write(t.Context(), tx, 7, 1); err == nil || !strings.Contains(err.Error(), "SQL.Schema") {
			t.Errorf("a guard whose schema was not made: %v", err)
		}
		must(t, tx.Rollback())
		run(t, db, g.Schema())
	}
	for _, g := range []struct {
		*fence.SQL
		resource any
	}{{table, "account/7"}, {table, "\x00\xff' OR 1=1 --"}, {table, strings.Repeat("\xff", 512)}, {column, 7}} {
		act := func(do func(context.Context, *sql.Tx, any, uint64) error, fence uint64) error {
			tx := begin(t, db)
			err := do(t.Context(), tx, g.resource, fence)
			if err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}
		if err := act(g.Read, 1); err != nil {
			t.Errorf("%q: a read before any write: %v", g.resource, err)
		}
		for i, c := range []struct {
			write bool
			fence uint64
			ok    bool
		}{
			{true, 5, true}, {true, 5, true}, {false, 9, true}, {true, 6, true}, {true, 5, false}, {false, 5, false}, {false, 6, true},
			{true, 10, true}, {true, 9, false}, {true, 1<<63 - 1, true}, {true, 1<<63 - 2, false}, {false, 1<<63 - 1, true},
		} {
			do := g.Read
			if c.write {
				do = g.Write
			}
			if err := act(do, c.fence); (err == nil) != c.ok || !c.ok && !errors.Is(err, fence.ErrStale) {
				t.Errorf("%q: step %d, fence %d: %v", g.resource, i, c.fence, err)
			}
		}
		for _, bad := range []uint64{0, 1 << 63} {
			if err := act(g.Write, bad); err == nil || errors.Is(err, fence.ErrStale) {
				t.Errorf("%q: %d is no fence: %v", g.resource, bad, err)
			}
		}
	}
	tx := begin(t, db)
	if err := column.Write(t.Context(), tx, 8, 1); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("a row that is not there: %v", err)
	}
	must(t, tx.Rollback())
	if n := number(t, db, "SELECT COUNT(*) FROM hasp_guard"); n != 3 {
		t.Errorf("%d resources, want 3", n)
	}
}

// guardAtOnce has writers with different fences work at once: each that was let in writes its fence
// after it was compared, and what is written in the end is the largest.
func guardAtOnce(t *testing.T, db *sql.DB, dialect *fence.Dialect) {
	const writers = 8
	guard := fence.Table(dialect, "guard_at_once")
	run(t, db, guard.Schema())
	run(t, db, "CREATE TABLE journal (n INTEGER NOT NULL)")
	run(t, db, "INSERT INTO journal VALUES (0)")
	write := func(n uint64) error {
		tx, err := db.BeginTx(context.Background(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := guard.Write(context.Background(), tx, "r", n); err != nil {
			return err
		}
		var was uint64
		if err := tx.QueryRow("SELECT n FROM journal").Scan(&was); err != nil {
			return err
		}
		if was > n {
			return fmt.Errorf("fence %d was let in after %d", n, was)
		}
		if _, err := tx.Exec(fmt.Sprintf("UPDATE journal SET n = %d", n)); err != nil {
			return err
		}
		return tx.Commit()
	}
	done := make(chan error)
	for i := range writers {
		go func() {
			var err error
			for n := range 10 {
				if e := write(uint64(1 + n*writers + (i*3)%writers)); e != nil && !errors.Is(e, fence.ErrStale) && !again(e) {
					err = errors.Join(err, e)
				}
			}
			done <- err
		}()
	}
	for range writers {
		must(t, <-done)
	}
	must(t, write(1000))
	if err := write(999); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	if n := number(t, db, "SELECT n FROM journal"); n != 1000 {
		t.Errorf("fence %d wrote last", n)
	}
}

// again says whether a database says that two transactions were in each other's way.
func again(err error) bool {
	return strings.Contains(err.Error(), "Deadlock") || strings.Contains(err.Error(), "locked")
}

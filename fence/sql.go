// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Dialect is the language of a database.
type Dialect struct {
	bytes               string // a column for any bytes
	larger              string // the larger of two numbers
	there, theirs       string // what an INSERT does with a row that is there, and the value that it came with
	forUpdate, forShare string // what a SELECT locks
	numbered            bool   // its parameters are $1, $2
}

// The dialects. MySQL is MariaDB's, too.
var (
	SQLite   = &Dialect{bytes: "BLOB", larger: "MAX", there: "ON CONFLICT (%s) DO UPDATE SET", theirs: "excluded.%s"}
	Postgres = &Dialect{bytes: "BYTEA", larger: "GREATEST", there: "ON CONFLICT (%s) DO UPDATE SET", theirs: "excluded.%s",
		forUpdate: " FOR UPDATE", forShare: " FOR SHARE", numbered: true}
	MySQL = &Dialect{bytes: "VARBINARY(512)", larger: "GREATEST", there: "ON DUPLICATE KEY UPDATE", theirs: "VALUES(%s)",
		forUpdate: " FOR UPDATE", forShare: " LOCK IN SHARE MODE"}
)

// SQL guards rows of a database. Its statements belong to the caller's transaction, and lock the
// row that has the fence until that ends: what the transaction changes afterwards is committed
// with a fence that was large enough, or not at all. It can be used by several goroutines.
type SQL struct {
	schema, raise, look, share string
	side                       bool // the fences are in a table of their own
}

// Table keeps the fences of any resources in a table of their own, by name ("" is hasp_guard).
// The name is part of the statements as it is: never take it from a stranger.
func Table(d *Dialect, name string) *SQL {
	if name == "" {
		name = "hasp_guard"
	}
	g := guard(d, name, "resource", "fence")
	g.side = true
	g.schema = fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (resource %s PRIMARY KEY, fence BIGINT NOT NULL)", name, d.bytes)
	there := strings.ReplaceAll(d.there, "%s", "resource")
	g.raise = d.parameters(fmt.Sprintf("INSERT INTO %s (fence, resource) VALUES (?, ?) %s fence = %s(%s.fence, %s)",
		name, there, d.larger, name, fmt.Sprintf(d.theirs, "fence")))
	return g
}

// Column keeps the fence of each row of a table of the caller's in a column of it, BIGINT NOT NULL
// DEFAULT 0. key is the table's primary key, one column. The names are part of the statements as
// they are: never take them from a stranger.
func Column(d *Dialect, table, key, column string) *SQL {
	g := guard(d, table, key, column)
	g.schema = fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s BIGINT NOT NULL DEFAULT 0", table, column)
	g.raise = d.parameters(fmt.Sprintf("UPDATE %s SET %s = %s(%s, ?) WHERE %s = ?", table, column, d.larger, column, key))
	return g
}

func guard(d *Dialect, table, key, column string) *SQL {
	look := d.parameters(fmt.Sprintf("SELECT %s FROM %s WHERE %s = ?", column, table, key))
	return &SQL{look: look + d.forUpdate, share: look + d.forShare}
}

// parameters writes each ? as the database wants it.
func (d *Dialect) parameters(text string) string {
	for n := 1; d.numbered && strings.Contains(text, "?"); n++ {
		text = strings.Replace(text, "?", fmt.Sprintf("$%d", n), 1)
	}
	return text
}

// Schema is the statement that makes the table, or the column.
func (g *SQL) Schema() string { return g.schema }

// Write is to be called in a transaction before it reads or changes what the resource stands for.
// That is, for a Table, any string of up to 512 bytes; for a Column, a value of its key. The error is a
// *[StaleError], [sql.ErrNoRows] when the table of a Column has no such row, or the database's. Roll back on any, and
// begin again if the database says that transactions were in each other's way.
func (g *SQL) Write(ctx context.Context, tx *sql.Tx, resource any, fence uint64) error {
	if err := Check(fmt.Sprint(resource), fence, 0); err != nil {
		return err
	}
	// How many rows it changed does not matter: MySQL counts those it found or those that became others, as the client wants.
	if _, err := tx.ExecContext(ctx, g.raise, int64(fence), g.value(resource)); err != nil {
		return failed(resource, err)
	}
	return g.compare(ctx, tx, g.look, resource, fence)
}

// Read is Write for a transaction that only reads what the resource stands for. It is refused
// below the fence of a write, and raises nothing. Writers wait until the transaction ends, or, in
// SQLite, are not seen by it.
func (g *SQL) Read(ctx context.Context, tx *sql.Tx, resource any, fence uint64) error {
	err := g.compare(ctx, tx, g.share, resource, fence)
	if g.side && errors.Is(err, sql.ErrNoRows) {
		return nil // it was never written
	}
	return err
}

func (g *SQL) compare(ctx context.Context, tx *sql.Tx, text string, resource any, fence uint64) error {
	var newest uint64
	if err := tx.QueryRowContext(ctx, text, g.value(resource)).Scan(&newest); err != nil {
		return failed(resource, err)
	}
	return Check(fmt.Sprint(resource), fence, newest)
}

// value is a resource as its column wants it.
func (g *SQL) value(resource any) any {
	if text, ok := resource.(string); ok && g.side {
		return []byte(text)
	}
	return resource
}

// missing matches what databases say of a table or a column that is not there.
var missing = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)no such (table|column)|(table|relation|column) .*(does not|doesn't) exist|unknown column`)
})

func failed(resource any, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("fence: no row has the key %q, whose fence was to be compared: insert it first: %w", fmt.Sprint(resource), err)
	}
	if missing().MatchString(err.Error()) {
		err = fmt.Errorf("%w (SQL.Schema returns the statement that makes it: run that once)", err)
	}
	return fmt.Errorf("fence: compare the fence of %q: %w", fmt.Sprint(resource), err)
}

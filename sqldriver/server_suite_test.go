// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// A database is a new one on a server.
type database struct {
	kind string // the driver of database/sql
	dsn  string
	wrap func(db *sql.DB) *Server
}

var databases atomic.Int64

// Connections that tests cut are no news.
func init() { _ = mysql.SetLogger(&mysql.NopLogger{}) }

// newPostgres makes a schema of its own in a server, with the tables.
func newPostgres(t testing.TB, server *testserver.Server) database {
	t.Helper()
	name := fmt.Sprint("s", databases.Add(1))
	base := fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", server.Addr())
	d := database{kind: "pgx", dsn: base + "&search_path=" + name, wrap: func(db *sql.DB) *Server { return NewPostgres(db, nil) }}
	d.create(t, d.dsn, "CREATE SCHEMA "+name) // which is searched from then on
	return d
}

// newMySQL makes a database of its own in a server, with the tables.
func newMySQL(t testing.TB, server *testserver.Server) database {
	t.Helper()
	name := fmt.Sprint("s", databases.Add(1))
	base := fmt.Sprintf("root@tcp(%s)/", server.Addr())
	d := database{kind: "mysql", dsn: base + name, wrap: func(db *sql.DB) *Server { return NewMySQL(db) }}
	d.create(t, base, "CREATE DATABASE "+name)
	return d
}

func (d database) create(t testing.TB, base, statement string) {
	t.Helper()
	db, err := sql.Open(d.kind, base)
	must(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), statement)
	must(t, err)
	if d.dsn != base {
		db = d.pool(t)
	}
	must(t, d.wrap(db).Init(t.Context()))
}

// pool opens a separate pool on it, as another process would.
func (d database) pool(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.kind, d.dsn)
	must(t, err)
	db.SetMaxIdleConns(64)
	if !d.postgres() {
		db.SetConnMaxIdleTime(time.Second) // one has a goroutine
	}
	t.Cleanup(func() { _ = db.Close() }) // it tells of connections that were cut
	return db
}

// open opens a driver with a pool of its own.
func (d database) open(t testing.TB) *Server {
	t.Helper()
	return d.wrap(d.pool(t))
}

func harness(t testing.TB, start func(testing.TB, ...string) *testserver.Server, empty func(testing.TB, *testserver.Server) database) drivertest.Harness {
	server := start(t)
	// Under the race detector, on a busy machine, a renewal may take a second.
	return drivertest.Harness{Parallel: true, AtOnce: 6, TTL: time.Second, New: func(t testing.TB) drivertest.Store {
		d := empty(t, server)
		return drivertest.Store{Open: func() driver.Driver { return d.open(t) }}
	}}
}

func TestPostgresSuite(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, harness(t, testserver.Postgres, newPostgres))
}

func TestMySQLSuite(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, harness(t, testserver.MariaDB, newMySQL))
}

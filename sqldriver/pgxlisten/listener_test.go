// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pgxlisten_test

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/sqldriver/pgxlisten"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

var must = expect.Need

var schemas atomic.Int64

func config(t testing.TB, server *testserver.Server, schema string) *pgx.ConnConfig {
	t.Helper()
	c, err := pgx.ParseConfig(fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&search_path=%s", server.Addr(), schema))
	must(t, err)
	return c
}

func pool(t testing.TB, c *pgx.ConnConfig) *sql.DB {
	t.Helper()
	db := stdlib.OpenDB(*c)
	db.SetMaxIdleConns(64)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// newSchema makes a schema of its own, with the tables.
func newSchema(t testing.TB, server *testserver.Server) *pgx.ConnConfig {
	t.Helper()
	c := config(t, server, fmt.Sprint("s", schemas.Add(1)))
	db := pool(t, c)
	_, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+c.RuntimeParams["search_path"])
	must(t, err)
	must(t, sqldriver.NewPostgres(db, nil).Init(t.Context()))
	return c
}

func open(t testing.TB, c *pgx.ConnConfig) *sqldriver.Server {
	t.Helper()
	return sqldriver.NewPostgres(pool(t, c), &sqldriver.PostgresOptions{Listener: pgxlisten.New(c)})
}

func TestSuite(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "hints by LISTEN, transactions in one request")
	server := testserver.Postgres(t)
	// Under the race detector, on a busy machine, a renewal may take a second.
	drivertest.Run(t, drivertest.Harness{Parallel: true, TTL: time.Second, New: func(t testing.TB) drivertest.Store {
		c := newSchema(t, server)
		return drivertest.Store{Open: func() driver.Driver { return open(t, c) }}
	}})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"context"
	"database/sql"
	"testing"

	gooselock "github.com/hasplock/hasp/adapters/goose"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/open"
	"github.com/hasplock/hasp/sqldriver"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock/locktesting"
)

// goose's own test of several providers, of which one migrates: database and locks are behind PgBouncer in transaction mode.
func TestGooseBehindAPooler(t *testing.T) {
	url := "postgres://postgres@" + testserver.PgBouncer(t, testserver.Postgres(t)).Addr() + "/postgres?sslmode=disable"
	db, err := sql.Open("pgx", url+"&default_query_exec_mode=exec")
	must(t, err)
	defer db.Close()
	must(t, sqldriver.NewPostgres(db, nil).Init(t.Context()))
	var migrations []goose.ProviderOption
	for _, table := range []string{"orders", "customers"} {
		create := &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "CREATE TABLE "+table+" (id bigint)")
			return err
		}}
		migrations = append(migrations, goose.WithGoMigrations(goose.NewGoMigration(int64(len(migrations)+1), create, nil)))
	}
	locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
		locks, err := open.Client(t.Context(), url, nil)
		must(t, err)
		t.Cleanup(func() { _ = locks.Close() })
		lock := goose.WithLocker(gooselock.New(locks, "migrations", nil))
		p, err := goose.NewProvider(goose.DialectPostgres, db, nil, append([]goose.ProviderOption{lock}, migrations...)...)
		must(t, err)
		return p
	})
}

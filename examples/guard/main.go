// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Guard has PostgreSQL refuse the late write of a holder that was paused: each write carries the fence.
//
//	HASP_STORE=postgres://postgres@localhost/postgres?sslmode=disable go run ./examples/guard
//
// It makes the tables of the locks, and hasp_example. The first holder's write, which comes late, is refused.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/fence"
	"github.com/hasplock/hasp/sqldriver"
	_ "github.com/jackc/pgx/v5/stdlib" // database/sql's driver "pgx"
)

const schema = `CREATE TABLE IF NOT EXISTS hasp_example (id BIGINT PRIMARY KEY, status TEXT NOT NULL, fence BIGINT NOT NULL DEFAULT 0);
INSERT INTO hasp_example VALUES (42, 'paid') ON CONFLICT DO NOTHING`

var orders = fence.Column(fence.Postgres, "hasp_example", "id", "fence")

// save changes an order, unless a later holder has written it: then the error is fence.ErrStale, and the caller stops.
func save(ctx context.Context, db *sql.DB, id int64, status string, token uint64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()                                      //nolint:errcheck // nothing is left to roll back after a commit
	if err := orders.Write(ctx, tx, id, token); err != nil { // UPDATE … SET fence = $1 WHERE id = $2 AND fence <= $1
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE hasp_example SET status = $1 WHERE id = $2", status, id); err != nil {
		return err
	}
	return tx.Commit()
}

func main() {
	db, err := sql.Open("pgx", os.Getenv("HASP_STORE"))
	if err == nil {
		err = run(context.Background(), db)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, db *sql.DB) error {
	store := sqldriver.NewPostgres(db, nil) // the locks are in the same database; they may be in any store
	if err := store.Init(ctx); err != nil {
		return err
	}
	locks, err := hasp.New(store, nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	order := locks.Mutex("orders/42", nil)
	first, err := order.Lock(ctx)
	if err != nil {
		return err
	}
	// Now the first holder is paused, and its lease ends: breaking it spares the wait.
	if err := locks.Operator().Break(ctx, first.Key(), first.Owner()); err != nil {
		return err
	}
	return order.Do(ctx, func(ctx context.Context, second *hasp.Lease) error {
		err := save(ctx, db, 42, "shipped", second.Fence())
		log.Printf("second holder, fence %d: %v", second.Fence(), err)
		log.Printf("first holder, fence %d: %v", first.Fence(), save(ctx, db, 42, "cancelled", first.Fence()))
		return err
	})
}

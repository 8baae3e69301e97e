// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Goose migrates a database once, however many replicas begin with that.
//
//	go run ./goose
//
// Start it twice at once: the second one waits, and finds nothing left to do. Kill the first one: the second one migrates.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	gooselock "github.com/hasplock/hasp/adapters/goose"
	"github.com/hasplock/hasp/open"
	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/pressly/goose/v3"
)

var work = flag.Duration("work", 5*time.Second, "how long the migration takes")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	locks, err := open.Client(ctx, cmp.Or(os.Getenv("HASP_STORE"), "sqlite:examples.db"), nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	db, err := sql.Open("sqlite3", "file:app.db")
	if err != nil {
		return err
	}
	defer db.Close()
	orders := goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		log.Print("at work on migration 1")
		select {
		case <-time.After(*work):
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err := tx.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
		return err
	}}, nil)
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, nil, goose.WithGoMigrations(orders), goose.WithLocker(gooselock.New(locks, "migrations", nil)))
	if err != nil {
		return err
	}
	applied, err := provider.Up(ctx)
	log.Printf("%d migrations were applied", len(applied))
	return err
}

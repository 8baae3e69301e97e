// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/sqldriver"
	_ "github.com/ncruces/go-sqlite3/driver"
)

// openExample opens a database in its own directory.
func openExample() (db *sql.DB, done func()) {
	dir, err := os.MkdirTemp("", "hasp")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite3", sqldriver.SQLiteDSN(filepath.Join(dir, "locks.db")))
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

func ExampleNewSQLite() {
	ctx := context.Background()
	db, done := openExample() // sql.Open("sqlite3", sqldriver.SQLiteDSN("/var/lib/app/locks.db"))
	defer done()

	locks, err := hasp.New(sqldriver.NewSQLite(db), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Mutex("nightly report", nil).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()

	info, err := locks.Operator().Inspect(ctx, "nightly report")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", info.Held, "by us:", info.Holder.Owner == lease.Owner())
	// Output: held: true by us: true
}

func ExampleSQLiteDSN() {
	fmt.Println(sqldriver.SQLiteDSN("/var/lib/app/locks.db"))
	// Output: file:/var/lib/app/locks.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(persist)&_pragma=synchronous(full)
}

// A lease can be lost without its holder noticing in time: the process is
// stopped, the machine sleeps. The fence lets the database refuse what such a
// holder still writes. It needs a column, and a condition in each UPDATE:
// a write with a larger fence shuts out all smaller ones.
//
// The same statement works on Postgres. For MySQL write ? and give the fence
// twice.
func Example_fenceGuard() {
	ctx := context.Background()
	db, done := openExample()
	defer done()
	_, err := db.Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, fence BIGINT NOT NULL DEFAULT 0);
		INSERT INTO orders (id, state) VALUES (42, 'new')`)
	if err != nil {
		log.Fatal(err)
	}

	save := func(state string, fence uint64) error {
		res, err := db.ExecContext(ctx,
			`UPDATE orders SET state = $1, fence = $2 WHERE id = $3 AND fence <= $2`, state, int64(fence), 42)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 1 {
			return err
		}
		return hasp.ErrLost // somebody with a later lease has written
	}

	locks, err := hasp.New(sqldriver.NewSQLite(db), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	mutex := locks.Mutex("orders/42", nil)

	stale, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("first holder:", save("paid", stale.Fence()))
	_ = stale.Release() // or the process is stopped for longer than the TTL

	lease, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	fmt.Println("second holder:", save("shipped", lease.Fence()))
	fmt.Println("first holder, late:", save("cancelled", stale.Fence()))

	var state string
	if err := db.QueryRow(`SELECT state FROM orders WHERE id = 42`).Scan(&state); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the order is", state)
	// Output:
	// first holder: <nil>
	// second holder: <nil>
	// first holder, late: lease lost
	// the order is shipped
}

func ExampleNewPostgres() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@db.example.com/app")
	if err != nil {
		log.Fatal(err)
	}
	d := sqldriver.NewPostgres(db, nil)
	if err := d.Init(ctx); err != nil { // once, by a user who may create tables
		log.Fatal(err)
	}
	locks, err := hasp.New(d, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.Mutex("nightly report", nil).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
}

func ExampleLockRow() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@db.example.com/app")
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it has nothing to do
	var id int
	var task string
	// The next task that no other worker has.
	err = sqldriver.LockRow(ctx, tx, sqldriver.SkipLocked, []any{&id, &task}, "SELECT id, task FROM job ORDER BY id LIMIT 1")
	switch {
	case errors.Is(err, hasp.ErrHeld):
		return // others have them all
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println(task)
	if _, err := tx.ExecContext(ctx, "DELETE FROM job WHERE id = $1", id); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

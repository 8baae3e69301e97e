// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/expect"
	_ "github.com/ncruces/go-sqlite3/driver"
)

var must = expect.Need

// openFile opens a separate pool on a file, as another process would.
func openFile(t testing.TB, path string) *sql.DB {
	t.Helper()
	return openDSN(t, SQLiteDSN(path))
}

func openDSN(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", dsn)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// patient opens a driver that waits for the file for as long as a busy machine takes
// to run all who want it.
func patient(t testing.TB, path string) *Driver {
	t.Helper()
	return waiting(openDSN(t, patientDSN(path)))
}

// patientDSN is of a database for waiting.
func patientDSN(path string) string {
	return strings.Replace(SQLiteDSN(path), "busy_timeout(5000)", "busy_timeout(3600000)", 1)
}

// walDSN is of a database that another program keeps in WAL.
func walDSN(path string) string {
	return strings.Replace(patientDSN(path), "journal_mode(persist)", "journal_mode(wal)", 1)
}

// waiting makes a patient driver.
func waiting(db *sql.DB) *Driver {
	d := NewSQLite(db)
	d.fileWait = time.Hour
	return d
}

// openDriver opens a patient driver on a file, with its own connections.
func openDriver(t testing.TB, path string) *Driver {
	t.Helper()
	d := patient(t, path)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func newFile(t testing.TB) string { return filepath.Join(t.TempDir(), "locks.db") }

// request is one of a fresh owner.
func request(key string) contend.Owner {
	return contend.Owner{Key: key, Owner: rand.Text(), Label: `{"host":"test","pid":1}`, TTL: 30 * time.Second, Patience: 10 * time.Second}
}

func queued(r contend.Owner) contend.Owner {
	r.Queue = true
	return r
}

func try(t testing.TB, d driver.Driver, r contend.Owner) driver.Result {
	t.Helper()
	res, err := contend.Try(t.Context(), d, r)
	must(t, err)
	return res
}

func granted(t testing.TB, d driver.Driver, r contend.Owner) driver.Result {
	t.Helper()
	res := try(t, d, r)
	stopIf(t, !res.Granted, "Try of %q was refused: %+v", r.Key, res)
	return res
}

func refused(t testing.TB, d driver.Driver, r contend.Owner) driver.Result {
	t.Helper()
	res := try(t, d, r)
	stopIf(t, res.Granted, "Try of %q was granted: %+v", r.Key, res)
	return res
}

// used makes a database in which a key is held.
func used(t testing.TB, path string) { change(t, path, "SELECT 1") }

// change makes a database in which a key is held, and changes it by hand.
func change(t testing.TB, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite3", patientDSN(path))
	must(t, err)
	defer db.Close()
	d := waiting(db)
	granted(t, d, request("held"))
	must(t, d.Close())
	_, err = db.Exec(statement)
	must(t, err)
}

// lockFile holds the write lock of a file until the returned function is
// called, which makes a last change.
func lockFile(t testing.TB, path string) func(change string) {
	t.Helper()
	c, err := openFile(t, path).Conn(t.Context())
	must(t, err)
	_, err = c.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	must(t, err)
	return func(change string) {
		t.Helper()
		_, err := c.ExecContext(context.Background(), change+"; COMMIT")
		must(t, err)
		must(t, c.Close())
	}
}

// waitFor waits for what another goroutine or process is about to do.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		stopIf(t, time.Since(start) > 5*time.Minute, "after %v: not yet: %s", time.Since(start), what)
	}
}

// queued is how many jobs have not begun.
func (w *writer) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs)
}

// waits says whether a transaction waits to begin.
func (w *writer) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.waitsSince.IsZero()
}

// failIf fails a test, which goes on, when what it saw is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends a test when what it saw is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// NewSQLite returns a driver that keeps locks in the SQLite database db, a
// file that processes of one machine share. See the package's comment for how
// to open it; [SQLiteDSN] says it in code.
//
// db stays the caller's: hasp.Client.Close doesn't close it. At most five of
// its connections are used at a time; one (SetMaxOpenConns(1)) is enough.
func NewSQLite(db *sql.DB) *Driver {
	return newDriver(db, &sqlite{clock: system, wall: time.Now})
}

// SQLiteDSN returns a data source name for the file at path, with the settings
// that locks need, for github.com/ncruces/go-sqlite3 and modernc.org/sqlite.
// The file is made at the first use; its directory must exist.
func SQLiteDSN(path string) string {
	path = filepath.ToSlash(path)
	if filepath.VolumeName(path) != "" { // file:///C:/locks.db
		path = "/" + path
	}
	// Of four slashes the first two stand before a host that is not named.
	network := strings.HasPrefix(path, "//")
	name := url.URL{Scheme: "file", OmitHost: !network, Path: path,
		RawQuery: "_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"}
	return name.String()
}

// sqlite is the dialect.
type sqlite struct {
	clock func() (reading, error)
	wall  func() time.Time
	file  atomic.Pointer[sqliteFile] // set when a connection is open
}

// sqliteFile is the file that the connections opened.
type sqliteFile struct {
	path string
	info os.FileInfo
}

func (s *sqlite) traits() driver.Traits {
	return driver.Traits{
		Engine: "sqlite",
		// A line, without handoff: to make the next in line the holder would
		// win nothing, as nothing tells it so. It looks, and takes the key in
		// the same transaction; and a waiter that died costs its patience
		// either way. The first in line looks every 25 ms or more often, those
		// behind it more rarely, each at least once a second.
		Queue:      driver.QueueHint,
		Fencing:    true,
		Proposable: true,
		Shared:     true,
		Slots:      true,
		// A commit may take this long on a slow disk, and some systems' clock
		// advances in steps of 16 ms.
		MinTTL: 50 * time.Millisecond,
		// There is no server to restart: the file is what a kill leaves. The
		// clock is not the one that can be set.
		Survives: driver.StoreRestart | driver.ClockStep,
	}
}

func (s *sqlite) text(q query) string { return sqliteText[q] }

// connect opens a connection, once. SQLite waits for a busy file by itself but
// for one moment: when several processes switch a new file to WAL at once, all
// but the first fail, without a wait. The file stays switched, so the moment
// is over when any connection of ours is open.
func (s *sqlite) connect(ctx context.Context, db *sql.DB) error {
	var locked error
	for start := time.Now(); s.file.Load() == nil; {
		c, err := db.Conn(ctx)
		switch {
		case err == nil:
			return errors.Join(s.meet(ctx, c), c.Close())
		case isLocked(err):
			locked = err
		case locked == nil || ctx.Err() == nil:
			return err
		}
		if ctx.Err() != nil || time.Since(start) > fileWait {
			return locked
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// meet notes which file this is.
func (s *sqlite) meet(ctx context.Context, c *sql.Conn) error {
	var path string
	if err := c.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path); err != nil {
		return err
	}
	if path == "" {
		return &storeError{class: driver.Misconfigured, err: errors.New("the database is in memory or temporary, where no other process sees it"),
			advice: "name a file; in tests use package memdriver"}
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	s.file.CompareAndSwap(nil, &sqliteFile{path: path, info: info})
	return nil
}

// unmoved fails when the file that connections have open is not the one that
// new processes find: the two would grant the same keys.
func (s *sqlite) unmoved() error {
	f := s.file.Load()
	info, err := os.Stat(f.path)
	if err == nil && os.SameFile(info, f.info) {
		return nil
	}
	return &storeError{class: driver.Misconfigured, err: fmt.Errorf("%s was deleted or replaced while in use", f.path),
		advice: "locks held in the old file protect nothing any more: end the programs that use it, and start them again"}
}

func (s *sqlite) begin(ctx context.Context, d *Driver) (*tx, error) {
	if err := s.unmoved(); err != nil {
		return nil, err
	}
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	sqlTx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	t := &tx{d: d, sql: sqlTx, ctx: ctx}
	if err := s.open(t); err != nil {
		t.rollback()
		return nil, err
	}
	return t, nil
}

// open takes the file's lock, and only then the time: a reading from before
// the wait would be older than what others wrote meanwhile.
func (s *sqlite) open(t *tx) error {
	if _, err := t.exec(qLock); err != nil {
		return err
	}
	if err := checkSettings(t.row(qSettings)); err != nil {
		return err
	}
	switch err := t.row(qHead).Scan(t.was.fields()...); {
	case errors.Is(err, sql.ErrNoRows):
		return errNoHead
	case err != nil:
		return err
	}
	now, err := s.time()
	if err != nil {
		return err
	}
	t.reading, t.head = now, t.was
	over, err := s.gone(t.was, now)
	if over && err == nil {
		t.head.floors = t.head.alone(now.up)
		_, err = t.sql.ExecContext(t.ctx, sqliteWipe)
	}
	if now.boot != t.was.boot {
		t.head.boot, t.head.before = now.boot, t.was.boot
	}
	if now.boot == "" {
		t.head.clock = int64(now.up)
	}
	return err
}

func (s *sqlite) commit(t *tx) error {
	err := t.sweep()
	if err == nil && t.head != t.was {
		_, err = t.exec(qMark, t.head.boot, t.head.before, t.head.clock, t.head.newest,
			t.head.old, t.head.mid, t.head.at)
	}
	if err != nil {
		t.rollback()
		return err
	}
	return t.sql.Commit()
}

func (s *sqlite) see() (reading, error) {
	if err := s.unmoved(); err != nil {
		return reading{}, err
	}
	return s.time()
}

func (s *sqlite) time() (reading, error) {
	now, err := s.clock()
	if err != nil {
		return reading{}, &storeError{class: driver.Misconfigured, err: err,
			advice: "leases in SQLite are measured by that clock"}
	}
	now.wall = max(s.wall().UnixMicro(), 1)
	return now, nil
}

// gone: the machine was booted since. Where boots have no names, the clock
// has gone back; where it had already passed what it was, leases end when
// their TTL is over, as the clock goes on counting from below.
//
// A boot that comes back after another is no boot: two machines share the
// file, and each would take the other's leases for over.
func (s *sqlite) gone(h head, now reading) (bool, error) {
	if h.version > schemaVersion {
		return false, tooNew(h.version)
	}
	if now.boot == "" && h.boot == "" {
		return int64(now.up) < h.clock, nil
	}
	if now.boot != h.boot && now.boot == h.before {
		return false, &storeError{class: driver.Misconfigured,
			err:    errors.New("the file is used from two machines at once (or from a virtual machine and its host)"),
			advice: "SQLite's clock is the machine's, so each takes the other's leases for over: give each a file of its own, or use a server"}
	}
	return now.boot != h.boot, nil
}

// byHand: keys are any bytes, so they are written in hexadecimal. The last
// column compares with /proc/uptime; a row that is past it is over.
func (s *sqlite) byHand(key string) []string {
	const query = "SELECT kind, seq, owner, label, fence, expires/1000000000 AS expires_at_uptime_s FROM hasp_lease WHERE key = "
	const order = " AND kind <> 'gone' AND owner <> '' ORDER BY kind, seq;"
	out := []string{fmt.Sprintf("%sx'%x'%s", query, key, order)}
	plain := !strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' })
	if plain {
		out = append(out, fmt.Sprintf("%sCAST('%s' AS BLOB)%s", query, strings.ReplaceAll(key, "'", "''"), order))
	}
	return out
}

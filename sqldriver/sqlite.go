// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// NewSQLite returns a driver that keeps locks in the SQLite database db, a file that
// processes of one machine share. The package comment says how to open it;
// [SQLiteDSN] returns the data source name.
//
// db stays the caller's: hasp.Client.Close does not close it. At most five of its
// connections are used at a time; one (SetMaxOpenConns(1)) is enough.
func NewSQLite(db *sql.DB) *Driver {
	return newDriver(db, &sqlite{clock: system, wall: time.Now})
}

// SQLiteDSN returns a data source name for the file at path, with the settings
// that locks need, for github.com/ncruces/go-sqlite3 and modernc.org/sqlite.
// The file is created on first use; its directory must exist.
func SQLiteDSN(path string) string {
	path = filepath.ToSlash(path)
	if filepath.VolumeName(path) != "" { // file:///C:/locks.db
		path = "/" + path
	}
	// Of four slashes the first two stand before a host that is not named.
	network := strings.HasPrefix(path, "//")
	name := url.URL{Scheme: "file", OmitHost: !network, Path: path,
		RawQuery: "_pragma=busy_timeout(5000)&_pragma=journal_mode(persist)&_pragma=synchronous(full)"}
	return name.String()
}

// sqlite is the dialect.
type sqlite struct {
	clock func() (reading, error)
	wall  func() time.Time
	file  atomic.Pointer[sqliteFile] // set when a connection is open
}

func (s *sqlite) traits() driver.Traits {
	return driver.Traits{
		Engine: "sqlite",
		// No handoff: to make the next waiter the holder would gain nothing, as
		// nothing notifies it. It polls, and is granted the key in the same
		// transaction; and a waiter that died costs its patience either way. The
		// first in the queue polls every 25 ms or more often, those behind it less
		// often, each at least once a second.
		Queue:         driver.QueueHint,
		Fencing:       true,
		Shared:        true,
		Slots:         true,
		Abandons:      true,
		AbandonedOnce: true,
		// A commit may take this long on a slow disk, and some systems' clock
		// advances in steps of 16 ms.
		MinTTL: 50 * time.Millisecond,
		// There is no server to restart or to take over: a kill leaves the file as it is.
		// Leases are not measured by the clock that can be set.
		Survives: driver.StoreRestart | driver.ClockStep | driver.Failover,
	}
}

func (s *sqlite) text(q query) string { return sqliteText[q] }

func (s *sqlite) begin(ctx context.Context, d *Driver) (*tx, error) {
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	sqlTx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	t := &tx{d: d, sql: sqlTx, ctx: ctx}
	t.table = t
	if err := s.open(t); err != nil {
		t.rollback()
		return nil, d.reopen(ctx, err)
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
	now, err := s.see()
	if err != nil {
		return err
	}
	t.reading, t.head, t.node = now, t.was, t.was.node
	change, err := s.clockChange(t.was, now)
	if err != nil {
		return err
	}
	return t.adopt(change)
}

func (s *sqlite) commit(t *tx) error {
	err := s.file.Load().unmoved()
	if err == nil {
		err = t.sweep()
	}
	if err == nil && t.head != t.was {
		_, err = t.exec(qMark, t.head.boot, t.head.before, t.head.clock, t.head.newest,
			t.head.old, t.head.mid, t.head.at, t.head.wall)
	}
	if err != nil {
		return err
	}
	return t.sql.Commit()
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

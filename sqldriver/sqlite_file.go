// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqlconn "database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A sqlite is a SQLite database, as this process has it open.
type sqlite struct {
	pool
	clock func() (reading, error)
	wall  func() time.Time
	file  atomic.Pointer[sqliteFile] // set when a connection is open
	texts prepared
	reads chan struct{} // a token for each read under way

	endLimit time.Duration // how long a read may take to end after its context
	fileWait time.Duration // how long a transaction waits for the file's lock
}

// see reads the clock.
func (s *sqlite) see() (reading, error) {
	now, err := s.clock()
	if err != nil {
		return reading{}, &storeError{class: driver.ClassMisconfigured, err: err,
			advice: "leases in SQLite are measured by that clock"}
	}
	now.Wall = max(s.wall().UnixMicro(), 1)
	return now, nil
}

// explain adds to an error of the database what kind of trouble it is, and what to do.
func (s *sqlite) explain(err error) error {
	if err == nil || errors.As(err, new(*storeError)) {
		return err
	}
	f := s.file.Load()
	if f == nil {
		return explainSQLite(err, "")
	}
	if moved := f.unmoved(); errors.Is(moved, errReplaced) { // in SQLite's words it can only be read
		return moved
	}
	return explainSQLite(err, f.path)
}

// fileWait is how long a transaction waits for the file's lock, as SQLiteDSN has it.
const fileWait = 5 * time.Second

// sqliteFile is the file that the connections opened. A process that comes to it by
// its path must find the same one: in another it would neither see what others hold
// nor wait for them.
type sqliteFile struct {
	path string
	main os.FileInfo
}

// connect opens a connection, once, and looks at the file from then on. A file that
// another program left in WAL is switched by the first connection; of several
// that come at the same moment all may fail, without a wait; and all do while such a
// program has it open, which is said before the caller has given up.
func (s *sqlite) connect(ctx context.Context) error {
	var locked error
	start := time.Now()
	for try := 0; ; try++ {
		if f := s.file.Load(); f != nil {
			return f.unmoved()
		}
		c, err := s.db.Conn(ctx)
		switch {
		case err == nil:
			err = s.meet(ctx, c)
			if !errors.Is(err, errNotPersist) || try >= switchTries {
				return errors.Join(err, c.Close())
			}
			drop(c)
		case isLocked(err):
			locked = err
		case locked == nil || ctx.Err() == nil:
			return err
		}
		if locked != nil && (ctx.Err() != nil || time.Since(start) > s.fileWait*4/5) {
			return locked
		}
		time.Sleep(mathrand.N(2 * time.Millisecond << min(try, 7))) // each that comes must be alone for a moment
	}
}

// switchTries is how often a connection may come in WAL, as it does while others
// switch the file, before its data source name is to blame.
const switchTries = 8

// drop has the pool close a connection.
func drop(c *sql.Conn) {
	_ = c.Raw(func(any) error { return sqlconn.ErrBadConn })
	_ = c.Close() // it is closed already
}

// meet notes which file this is.
func (s *sqlite) meet(ctx context.Context, c *sql.Conn) error {
	var path, journal string
	const which = `SELECT file, (SELECT journal_mode FROM pragma_journal_mode) FROM pragma_database_list WHERE name = 'main'`
	if err := c.QueryRowContext(ctx, which).Scan(&path, &journal); err != nil {
		return err
	}
	switch {
	case path == "":
		return &storeError{class: driver.ClassMisconfigured, err: errors.New("the database is in memory or temporary, where no other process sees it"),
			advice: "name a file; in tests use package memdriver"}
	case journal != persist:
		return &storeError{class: driver.ClassMisconfigured, err: fmt.Errorf("journal_mode is %s; %w", journal, errNotPersist),
			advice: inTheName}
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f := &sqliteFile{path: path, main: info}
	switch mounted, err := isMountPoint(path); {
	case outOfFiles(err):
		return err
	case err != nil:
		return &storeError{class: driver.ClassMisconfigured, err: fmt.Errorf("cannot tell whether %s is mounted by itself: %w", path, err),
			advice: "is /proc mounted?"}
	case mounted:
		return f.secondPath("is mounted by itself (as with docker run -v FILE:FILE)")
	}
	if err := f.unmoved(); err != nil {
		return err
	}
	s.file.CompareAndSwap(nil, f)
	return nil
}

func (f *sqliteFile) secondPath(how string) error {
	return &storeError{class: driver.ClassMisconfigured, err: fmt.Errorf("%s %s, so it has a second path", f.path, how),
		advice: "SQLite keeps a -journal beside each path, and a program that comes by the other one does not undo what was half written when a " +
			"process was killed: leave it one name, and share its folder with containers, not the file"}
}

// unmoved fails when what connections have open is not what new processes find:
// the two would grant the same keys.
func (f *sqliteFile) unmoved() error {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(info, f.main):
		return &storeError{class: driver.ClassMisconfigured, err: fmt.Errorf("%s was %w while in use", f.path, errReplaced),
			advice: "locks held in it protect nothing any more: end the programs that use it, and start them again"}
	case err != nil:
		return err
	}
	if n := links(info); n > 1 {
		return f.secondPath(fmt.Sprintf("has %d hard links", n))
	}
	return nil
}

// reopen closes the idle connections when err says that the file was switched: new
// ones switch it back, which none can while another has read it in WAL.
func (s *sqlite) reopen(ctx context.Context, err error) error {
	if !errors.Is(err, errSwitched) {
		return err
	}
	for range s.db.Stats().Idle {
		c, err := s.db.Conn(ctx)
		if err != nil {
			break
		}
		drop(c)
	}
	return err
}

// isMountPoint says whether something is mounted at a path itself. A file that is
// bound to another path of the same file system looks like any other but for this. Only Linux
// mounts a file.
func isMountPoint(path string) (bool, error) {
	if runtime.GOOS != "linux" {
		return false, nil
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	point := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == point {
			return true, nil
		}
	}
	return false, nil
}

// setup checks the settings of the database, and makes the tables where they are missing, any
// number of processes at once. The writer calls it where its first transaction cannot begin.
func (s *sqlite) setup(ctx context.Context) error {
	c, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var h head
	if err := c.QueryRowContext(ctx, `SELECT `+sqliteSettings).Scan(&h.synchronous, &h.busy); err != nil {
		return err
	}
	if err := h.checkSettings(); err != nil {
		return err
	}
	switch version, err := tablesVersion(ctx, c); {
	case err != nil:
		return err
	case version != 0:
		return rightVersion(version)
	}
	if err := s.makeTables(ctx, c); err != nil {
		// A failure at BEGIN leaves nothing to roll back, which is an error, too.
		_, _ = c.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
		return err
	}
	return nil
}

// tablesVersion is 0 when a table is missing.
func tablesVersion(ctx context.Context, c *sql.Conn) (version int, err error) {
	var tables int
	const count = `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('hasp_meta', 'hasp_lease')`
	if err := c.QueryRowContext(ctx, count).Scan(&tables); err != nil || tables < 2 {
		return 0, err
	}
	err = c.QueryRowContext(ctx, `SELECT version FROM hasp_meta WHERE id = 1`).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNoHead
	}
	return version, err
}

// makeTables makes the tables in one transaction, unless another process has made them meanwhile.
func (s *sqlite) makeTables(ctx context.Context, c *sql.Conn) error {
	if _, err := c.ExecContext(ctx, `BEGIN IMMEDIATE; `+sqliteTables); err != nil {
		return err
	}
	if _, err := c.ExecContext(ctx, sqliteFirst, schemaVersion, max(s.wall().UnixMicro(), 1), rand.Text()); err != nil {
		return err
	}
	version, err := tablesVersion(ctx, c)
	if err == nil {
		err = rightVersion(version)
	}
	if err != nil {
		return err
	}
	_, err = c.ExecContext(ctx, `COMMIT`)
	return err
}

// checkSettings refuses to work where a commit could be forgotten, or where
// every moment's contention would be an error.
func (h *head) checkSettings() error {
	var what string
	switch {
	case h.synchronous < 2:
		what = fmt.Sprintf("synchronous is %d; it must be FULL (2), or fences may be given twice after a power failure", h.synchronous)
	case h.busy < 1000:
		what = fmt.Sprintf("busy_timeout is %d ms; it must be 1000 or more, or processes that write at the same moment fail", h.busy)
	default:
		return nil
	}
	return &storeError{class: driver.ClassMisconfigured, err: errors.New(what), advice: inTheName}
}

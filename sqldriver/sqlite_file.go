// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	sqlconn "database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/hasplock/hasp/driver"
)

// sqliteFile is the file that the connections opened. A process that comes to it by
// its path must find the same one: in another it would neither see what others hold
// nor wait for them.
type sqliteFile struct {
	path string
	main os.FileInfo
}

// persist is the one journal_mode in which the file alone says what is held, and a
// commit is on the disk when it is answered. In WAL what is held may be in the -wal
// alone; delete commits by removing the journal, which a power failure may undo.
const persist = "persist"

var errNotPersist = errors.New("it must be " + persist + ", so that the file alone says what is held")

// errReplaced: what is held in the file that we have open keeps nobody away.
var errReplaced = errors.New("deleted or replaced")

// connect opens a connection, once, and looks at the file from then on. A file that
// an earlier version left in WAL is switched by the first connection; of several
// that come at the same moment all may fail, without a wait; and all do while a program
// of that version has it open, which is said before the caller has given up.
func (s *sqlite) connect(ctx context.Context, d *Driver) error {
	var locked error
	start := time.Now()
	for try := 0; ; try++ {
		if f := s.file.Load(); f != nil {
			return f.unmoved()
		}
		c, err := d.db.Conn(ctx)
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
		if locked != nil && (ctx.Err() != nil || time.Since(start) > d.fileWait*4/5) {
			return locked
		}
		time.Sleep(rand.N(2 * time.Millisecond << min(try, 7))) // each that comes must be alone for a moment
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

// lostWith makes the error of a file that is not the one at its path any more the
// loss of what was held in it: the next process finds the key free.
func lostWith(err error) error {
	if errors.Is(err, errReplaced) {
		return fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
	}
	return err
}

// errSwitched: another program, such as hasp before tables of version 5, has
// switched the file to WAL, or had when the connection last read it.
var errSwitched = errors.New("another program has switched the file to another journal_mode than " + persist)

// reopen closes the idle connections when err says that the file was switched: new
// ones switch it back, which none can while another has read it in WAL.
func (d *Driver) reopen(ctx context.Context, err error) error {
	if !errors.Is(err, errSwitched) {
		return err
	}
	for range d.db.Stats().Idle {
		c, err := d.db.Conn(ctx)
		if err != nil {
			break
		}
		drop(c)
	}
	return err
}

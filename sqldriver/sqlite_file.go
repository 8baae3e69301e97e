// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// sqliteFile is the file that the connections opened. Whoever comes to it by its
// path must find the same one, and the same two beside it: with a -wal or an -shm
// of its own a process neither sees what others hold nor waits for them.
type sqliteFile struct {
	path string
	main os.FileInfo

	mu       sync.Mutex
	beside   [2]seen
	broken   bool     // the -shm was cut off, once
	restored *os.File // see restoreShm
}

// seen is a file as it was when it was last looked at.
type seen struct {
	info os.FileInfo // nil: it was not there
	keep *os.File    // where the system can keep an inode, that of info
}

// What SQLite keeps beside a file; a rollback journal needs neither.
const (
	wal = iota
	shm
)

var besideNames = [2]string{wal: "-wal", shm: "-shm"}

// shmRegion is what a connection in use has of the -shm at least.
const shmRegion = 32 << 10

var (
	errCutOff   = errors.New("cut off")
	errReplaced = errors.New("deleted or replaced")
)

// connect opens a connection, once, and looks at the file from then on. SQLite
// waits for a busy file by itself but for one moment: when several processes switch a new file to WAL at once, all
// but the first fail, without a wait. The file stays switched, so the moment
// is over when any connection of ours is open.
func (s *sqlite) connect(ctx context.Context, d *Driver) error {
	var locked error
	for start := time.Now(); ; {
		if f := s.file.Load(); f != nil {
			return f.settled(ctx)
		}
		c, err := d.db.Conn(ctx)
		switch {
		case err == nil:
			return errors.Join(s.meet(ctx, c), c.Close())
		case isLocked(err):
			locked = err
		case locked == nil || ctx.Err() == nil:
			return err
		}
		if ctx.Err() != nil || time.Since(start) > d.fileWait {
			return locked
		}
		time.Sleep(time.Millisecond)
	}
}

// meet notes which file this is.
func (s *sqlite) meet(ctx context.Context, c *sql.Conn) error {
	var path string
	if err := c.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path); err != nil {
		return err
	}
	if path == "" {
		return &storeError{class: driver.ClassMisconfigured, err: errors.New("the database is in memory or temporary, where no other process sees it"),
			advice: "name a file; in tests use package memdriver"}
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f := &sqliteFile{path: path, main: info}
	switch mounted, err := isMountPoint(path); {
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
		advice: "SQLite keeps a -wal and an -shm beside each path, and users of one don't see what is held by users of the other: " +
			"leave it one name, and share its folder with containers, not the file"}
}

func (f *sqliteFile) misused(path string, what error) error {
	return &storeError{class: driver.ClassMisconfigured, err: fmt.Errorf("%s was %w while in use", path, what),
		advice: "locks held in " + f.path + " protect nothing any more: end the programs that use it, and start them again"}
}

// unmoved fails when what connections have open is not what new processes find:
// the two would grant the same keys.
func (f *sqliteFile) unmoved() error {
	info, err := os.Stat(f.path)
	if err != nil || !os.SameFile(info, f.main) {
		return f.misused(f.path, errReplaced)
	}
	if n := links(info); n > 1 {
		return f.secondPath(fmt.Sprintf("has %d hard links", n))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return f.misused(f.path+besideNames[shm], errCutOff)
	}
	for i, name := range besideNames {
		if err := f.compare(i, f.path+name); err != nil {
			return err
		}
	}
	return nil
}

// settled is unmoved without a transaction, whose connection keeps SQLite from
// deleting the files. What looks wrong may be a connection that is just being
// closed or opened, so it must be so for a while.
func (f *sqliteFile) settled(ctx context.Context) error {
	err := f.unmoved()
	for range 100 {
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
		err = f.unmoved()
	}
	return f.noteCutOff(err)
}

// noteCutOff remembers an -shm that was truncated: the file is of no use from then on.
func (f *sqliteFile) noteCutOff(err error) error {
	if errors.Is(err, errCutOff) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.restoreShm()
	}
	return err
}

// compare looks at a file beside the database. SQLite deletes both when no
// process has a connection open, and makes them anew: so another file than the
// last time is wrong only while something of this process has that one open.
func (f *sqliteFile) compare(i int, path string) error {
	was := &f.beside[i]
	is, err := os.Lstat(path)
	switch {
	case was.info != nil && err == nil && os.SameFile(was.info, is):
		if i == shm && is.Size() < shmRegion && was.info.Size() >= shmRegion {
			return f.misused(path, errCutOff)
		}
		was.info = is
		return nil
	case was.info != nil && isOpen(was.info):
		return f.misused(path, errReplaced)
	}
	was.forget()
	if err == nil {
		was.note(path)
	}
	return nil
}

func (s *seen) note(path string) {
	file, err := keep(path)
	if err == nil && file != nil {
		s.info, err = file.Stat()
		s.keep = file
	} else if err == nil {
		s.info, err = os.Lstat(path)
	}
	if err != nil { // it was deleted meanwhile
		s.forget()
	}
}

func (s *seen) forget() {
	if s.keep != nil {
		_ = s.keep.Close() // nothing was written
	}
	*s = seen{}
}

// restoreShm gives an -shm that was truncated its length back. Connections have it
// mapped, and the system kills whoever touches a page that is not in the file: that
// would be the program, when it closes its database. SQLite rebuilds the content from
// the -wal. The file stays open: closing it would drop the locks that some of Go's
// SQLite drivers hold on it. f.mu is held.
func (f *sqliteFile) restoreShm() {
	f.broken = true
	was := f.beside[shm].info
	if was == nil || f.restored != nil {
		return
	}
	file, err := openPlain(f.path + besideNames[shm])
	if err != nil {
		return
	}
	f.restored = file
	if info, err := file.Stat(); err == nil && os.SameFile(info, was) && info.Size() < was.Size() {
		_ = file.Truncate(was.Size()) // where that fails, the error is reported all the same
	}
}

func (s *sqlite) close() {
	if f := s.file.Load(); f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range f.beside {
			f.beside[i].forget()
		}
	}
}

// fault: the only memory that SQLite has mapped is the -shm. The program's other use
// of the database must not hit the same fault.
func (s *sqlite) fault() error {
	f := s.file.Load()
	if f == nil { // at the first connection
		return &storeError{class: driver.ClassMisconfigured, err: errors.New("the -shm beside the database file was cut off while it was opened"),
			advice: "end the programs that use the file, and start them again"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restoreShm()
	return f.misused(f.path+besideNames[shm], errCutOff)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp/driver"
)

// sqliteTrouble is what can be wrong with a file. Go's SQLite drivers have
// each their own error type and number type, but all of them pass on SQLite's
// own words, which have stood for decades, and the system's. The first that
// matches decides: the system's words are more exact and come first.
var sqliteTrouble = []struct {
	words  []string
	class  driver.Class
	advice string // FILE stands for the file
}{
	{[]string{"too many open files"}, driver.ClassUnreachable, "this process, or its machine, has as many open files as it may (ulimit -n)"},
	{[]string{"file too large"}, driver.ClassMisconfigured, "FILE, or the -journal beside it, would be larger than this process may write (ulimit -f)"},
	{[]string{"no space left on device", "quota exceeded", "database or disk is full"}, driver.ClassFull,
		"make room on the disk of FILE (df shows what is left; or lift the database's max_page_count)"},
	{[]string{"read-only file system", "readonly database"}, driver.ClassReadOnly,
		"locks must be written: make FILE, the -journal beside it, and its directory writable for this user (ls -l; " +
			"for several users with one group: chgrp, chmod g+rw, and g+rwxs for the directory), and open it without mode=ro"},
	{[]string{"permission denied", "access permission denied", "operation not permitted"}, driver.ClassDenied,
		"this user may not read and write FILE, the -journal beside it, and its directory (ls -l); " +
			"for several users both belong to one group that may write them (chgrp, chmod g+rw, and g+rwxs for the directory)"},
	{[]string{"file is not a database", "file is encrypted"}, driver.ClassMisconfigured,
		"FILE holds something else: name another file, or move this one away"},
	{[]string{"malformed", "database corruption"}, driver.ClassMisconfigured,
		"FILE is damaged: end the programs that use it, move it away together with its -journal, and a new one is made"},
	{[]string{"no such file or directory"}, driver.ClassMisconfigured, "FILE or its folder does not exist: make the folder"},
	{[]string{"unable to open database file"}, driver.ClassMisconfigured,
		"FILE, or the -journal beside it, cannot be opened: it must be a file, in a directory that exists and is writable for this user " +
			"(ls -l; for several users with one group: chgrp, chmod g+rw, and g+rwxs for the directory)"},
	{[]string{"database is locked", "database table is locked", "database schema is locked", "stayed locked", "locking protocol"}, driver.ClassUnreachable,
		"another process is in a transaction, was stopped within one, or has it open in WAL; find it with: fuser -v FILE"},
	{[]string{errSwitched.Error()}, driver.ClassUnreachable,
		"end it: fuser -v FILE; the file is switched back by itself"},
	{[]string{"the disk has not finished"}, driver.ClassUnreachable,
		"the disk of FILE hangs or is very slow, or this machine is overloaded (dmesg and top say more)"},
	{[]string{"disk i/o error"}, driver.ClassUnreachable,
		"the disk of FILE fails, or is a network file system, which is not supported"},
	{[]string{"no such column", "has no column named", "hasp_meta", "hasp_lease", "constraint failed", "datatype mismatch"}, driver.ClassMisconfigured,
		"the tables in FILE are not as hasp made them, or of a hasp before v0.1; " + startAnew},
	{[]string{"pragma_", "syntax error", "unrecognized token"}, driver.ClassMisconfigured,
		"this SQLite is too old for hasp (3.37 is needed)"},
	{[]string{"out of memory"}, driver.ClassUnreachable,
		"the program ran out of memory for SQLite"},
}

// fullCode is SQLITE_IOERR_WRITE. The driver that the command uses loses the system's word
// for a full disk, and leaves only the number, as the value of an error; a disk that fails
// is rarer, and ends a wait as well.
const fullCode = 778

func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func noRoom(err error) bool {
	if v := reflect.ValueOf(err); v.CanUint() && v.Uint() == fullCode {
		return true
	}
	switch u := err.(type) { //nolint:errorlint // each error of the tree
	case interface{ Unwrap() error }:
		return noRoom(u.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(u.Unwrap(), noRoom)
	}
	return false
}

// explainSQLite adds to an error what kind of trouble it is with a file, and what to do.
func explainSQLite(err error, path string) error {
	file, size := cmp.Or(path, "the database file"), int64(0)
	if info, err := os.Stat(path); err == nil {
		size = info.Size()
	}
	text := strings.ToLower(err.Error())
	switch {
	case noRoom(err) && size+64<<10 > maxFile():
		text = "file too large"
	case noRoom(err):
		text = "database or disk is full"
	case strings.Contains(text, "unable to open database file"): // the system's word is lost
		if probe, err := os.Open(os.DevNull); err == nil {
			_ = probe.Close()
		} else if outOfFiles(err) {
			text = "too many open files"
		}
	}
	for _, t := range sqliteTrouble {
		for _, w := range t.words {
			if strings.Contains(text, w) {
				return &storeError{class: t.class, err: err, advice: strings.ReplaceAll(t.advice, "FILE", file)}
			}
		}
	}
	return err
}

// isLocked: another process is writing.
func isLocked(err error) bool {
	return err != nil && strings.Contains(err.Error(), "is locked")
}

// isNoTable: hasp has not used this database yet.
func isNoTable(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no such table: hasp_")
}

// A waitError says what was waited for in vain.
type waitError struct {
	what   string // stayedLocked or diskHangs
	waited time.Duration
	err    error // the database's, or the context's
}

const (
	stayedLocked = "the database stayed locked"                // another process had the file locked for as long as we waited
	diskHangs    = "the disk has not finished a read or write" // it did not answer in time
)

func (e *waitError) Error() string {
	return fmt.Sprintf("%s for %v", e.what, e.waited.Round(time.Millisecond))
}
func (e *waitError) Unwrap() error { return e.err }

// persist is the one journal_mode in which the file alone says what is held, and a
// commit is on the disk when it is answered. In WAL what is held may be in the -wal
// alone; delete commits by removing the journal, which a power failure may undo.
const persist = "persist"

var errNotPersist = errors.New("it must be " + persist + ", so that the file alone says what is held")

// errReplaced: what is held in the file that we have open keeps no other process away.
var errReplaced = errors.New("deleted or replaced")

// errSwitched: another program has
// switched the file to WAL, or had when the connection last read it.
var errSwitched = errors.New("another program has switched the file to another journal_mode than " + persist)

// startAnew is what to do with a file whose tables mean nothing to this program.
const startAnew = "end the programs that use the file, and delete it with its -journal, -wal and -shm (one with other tables: DROP TABLE hasp_meta, hasp_lease), or name a new one"

// rightVersion refuses tables of another version than this program's.
func rightVersion(version int) error {
	advice := "update it"
	switch {
	case version == schemaVersion:
		return nil
	case version < schemaVersion:
		advice = "a hasp before v0.1 made them; " + startAnew
	}
	return &storeError{class: driver.ClassMisconfigured, advice: advice,
		err: fmt.Errorf("the tables are of version %d, and this program knows %d", version, schemaVersion)}
}

const inTheName = "set it in the data source name, where it holds for every connection (see sqldriver.SQLiteDSN)"

// lostWith makes the error of a file that is not the one at its path any more the
// loss of what was held in it: the next process finds the key free.
func lostWith(err error) error {
	if errors.Is(err, errReplaced) {
		return fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
	}
	return err
}

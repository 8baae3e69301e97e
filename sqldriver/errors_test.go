// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// trouble is a database that something is wrong with, and what a Try must say.
type trouble struct {
	name  string
	dsn   func(t *testing.T, path string) string // makes the trouble, names the database
	class driver.Class
	says  []string
}

var troubles = []trouble{
	{"the directory is missing", func(t *testing.T, path string) string {
		return SQLiteDSN(filepath.Join(path, "locks.db"))
	}, driver.ClassMisconfigured, []string{"does not exist: make the folder"}},

	{"it is a directory", func(t *testing.T, path string) string {
		must(t, os.Mkdir(path, 0o700))
		return SQLiteDSN(path)
	}, driver.ClassMisconfigured, []string{"it must be a file"}},

	{"it is no database", func(t *testing.T, path string) string {
		must(t, os.WriteFile(path, bytes.Repeat([]byte("orders,42\n"), 500), 0o600))
		return SQLiteDSN(path)
	}, driver.ClassMisconfigured, []string{"holds something else", "name another file"}},

	{"it was cut off", func(t *testing.T, path string) string {
		used(t, path)
		must(t, os.Truncate(path, 5000))
		return SQLiteDSN(path)
	}, driver.ClassMisconfigured, []string{"is damaged", "move it away"}},

	{"pages are overwritten", func(t *testing.T, path string) string {
		used(t, path)
		data, err := os.ReadFile(path)
		must(t, err)
		for i := 4096; i < len(data); i++ {
			data[i] = 0xa5
		}
		must(t, os.WriteFile(path, data, 0o600))
		return SQLiteDSN(path)
	}, driver.ClassMisconfigured, []string{"is damaged"}},

	{"it is opened read-only", func(t *testing.T, path string) string {
		used(t, path)
		return strings.Replace(SQLiteDSN(path), "?", "?mode=ro&", 1)
	}, driver.ClassReadOnly, []string{"without mode=ro"}},

	{"it is in memory", func(t *testing.T, path string) string {
		return strings.Replace(SQLiteDSN(path), path, ":memory:", 1)
	}, driver.ClassMisconfigured, []string{"in memory", "name a file"}},

	{"commits may be forgotten", func(t *testing.T, path string) string {
		return "file:" + path + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(persist)&_pragma=synchronous(normal)"
	}, driver.ClassMisconfigured, []string{"synchronous is 1", "sqldriver.SQLiteDSN"}},

	{"nobody waits", func(t *testing.T, path string) string {
		return "file:" + path + "?_pragma=busy_timeout(0)&_pragma=journal_mode(persist)"
	}, driver.ClassMisconfigured, []string{"busy_timeout is 0 ms", "sqldriver.SQLiteDSN"}},

	{"the journal is in memory", func(t *testing.T, path string) string {
		return "file:" + path + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(memory)"
	}, driver.ClassMisconfigured, []string{"journal_mode is memory", "sqldriver.SQLiteDSN"}},

	{"the file alone does not say what is held", func(t *testing.T, path string) string {
		used(t, path)
		return walDSN(path)
	}, driver.ClassMisconfigured, []string{"journal_mode is wal", "sqldriver.SQLiteDSN"}},

	{"a newer program made it", func(t *testing.T, path string) string {
		change(t, path, "UPDATE hasp_meta SET version = 6")
		return SQLiteDSN(path)
	}, driver.ClassMisconfigured, []string{"version 6", "update it"}},

	{"a hasp before v0.1 made it", func(t *testing.T, path string) string {
		change(t, path, "UPDATE hasp_meta SET version = 4")
		return SQLiteDSN(path)
	}, driver.ClassMisconfigured, []string{"version 4", "before v0.1", "delete it", "name a new one"}},

	{"a hasp before v0.1 made it, with fewer columns", func(t *testing.T, path string) string {
		change(t, path, "ALTER TABLE hasp_meta DROP COLUMN wall; UPDATE hasp_meta SET version = 3")
		return SQLiteDSN(path)
	}, driver.ClassMisconfigured, []string{"before v0.1", "delete it", "name a new one"}},

	{"the tables were emptied", func(t *testing.T, path string) string {
		change(t, path, "DELETE FROM hasp_meta")
		return SQLiteDSN(path)
	}, driver.ClassMisconfigured, []string{"hasp_meta is missing", "delete it with its -journal", "DROP TABLE"}},

	{"the tables are somebody else's", func(t *testing.T, path string) string {
		change(t, path, "DROP TABLE hasp_lease; CREATE TABLE hasp_lease (a, b)")
		return SQLiteDSN(path)
	}, driver.ClassMisconfigured, []string{"not as hasp made them"}},
}

// Rule: whatever is wrong with the file, every call says so, of what kind it
// is, and what to do; nothing hangs, and nothing is granted.
func TestTrouble(t *testing.T) {
	for _, c := range troubles {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dsn := c.dsn(t, filepath.Join(t.TempDir(), "locks"))
			db, err := sql.Open("sqlite3", dsn)
			must(t, err)
			defer db.Close()
			d := NewSQLite(db)
			defer d.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 2 {
				res, err := contend.Try(ctx, d, request("orders/42"))
				stopIf(t, err == nil, "Try: %+v, want an error", res)
				t.Logf("%v", err)
				if got := d.Classify(err); got != c.class {
					t.Errorf("class %d, want %d", got, c.class)
				}
				for _, say := range c.says {
					failIf(t, !strings.Contains(err.Error(), say), "the error lacks %q", say)
				}
			}
		})
	}
}

// Rule: a full database refuses new locks, says so, and still takes releases:
// also one that travels in the same transaction as the refused Try.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	used(t, path)
	db, err := sql.Open("sqlite3", SQLiteDSN(path)+"&_pragma=max_page_count(12)")
	must(t, err)
	defer db.Close()
	d := NewSQLite(db)
	defer d.Close()
	var held []contend.Owner
	for err == nil && len(held) < 1000 {
		r := request(fmt.Sprintf("%0500d", len(held)))
		if _, err = contend.Try(t.Context(), d, r); err == nil {
			held = append(held, r)
		}
	}
	t.Logf("after %d locks: %v", len(held), err)
	if d.Classify(err) != driver.ClassFull || !strings.Contains(err.Error(), "make room on the disk of "+path) {
		t.Errorf("class %d: %v", d.Classify(err), err)
	}

	// Both come while another transaction of this process waits for the file,
	// so they share the next.
	unlock := lockFile(t, path)
	refused, released := make(chan error, 1), make(chan error, 1)
	go contend.Renew(t.Context(), d, held[:1], func(int, driver.Renewal) {})
	waitFor(t, "the renewal waits for the file", d.writes.waits)
	go func() {
		_, err := contend.Try(t.Context(), d, request(strings.Repeat("k", 500)))
		refused <- err
	}()
	go func() { released <- contend.Release(t.Context(), d, held[0]) }()
	waitFor(t, "two jobs are queued", func() bool { return d.writes.queued() == 2 })
	unlock("SELECT 1")
	if err := <-released; err != nil {
		t.Errorf("Release beside a Try that finds the database full: %v", err)
	}
	if err := <-refused; d.Classify(err) != driver.ClassFull {
		t.Errorf("Try: class %d: %v", d.Classify(err), err)
	}
}

// Rule: a table that is missing is made anew by the next process.
func TestMissingTable(t *testing.T) {
	for _, table := range []string{"hasp_meta", "hasp_lease"} {
		path := newFile(t)
		change(t, path, "DROP TABLE "+table)
		granted(t, openDriver(t, path), request("k"))
	}
}

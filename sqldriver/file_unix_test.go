// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// fails wants every call to fail with words that say what is wrong with the file.
func fails(t *testing.T, d *Driver, held contend.Owner, words ...string) {
	t.Helper()
	check := func(what string, err error) {
		t.Helper()
		if err == nil || d.Classify(err) != driver.ClassMisconfigured {
			t.Errorf("%s: class %d: %v", what, d.Classify(err), err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the error lacks %q: %v", what, w, err)
			}
		}
	}
	_, err := contend.Try(t.Context(), d, request("free"))
	check("Try", err)
	_, err = contend.Try(t.Context(), d, request(held.Key))
	check("Try of a key that is held", err)
	check("Renew", renewal(t, d, held).Err)
	check("Release", contend.Release(t.Context(), d, held))
	_, err = d.Inspect(t.Context(), held.Key)
	check("Inspect", err)
}

// Rule: a file with a second name is refused, by either and also when it gets it
// while a key is held: each name would have its own -wal.
func TestHardLink(t *testing.T) {
	path, second := newFile(t), newFile(t)
	d, held := openDriver(t, path), request("k")
	granted(t, d, held)
	must(t, os.Link(path, second))
	fails(t, d, held, path+" has 2 hard links", "share its folder")
	fails(t, openDriver(t, second), held, second+" has 2 hard links", "share its folder")
	must(t, os.Remove(second))
	renewed(t, d, held)
	refused(t, openDriver(t, path), request("k"))
}

// Rule: a holder gets an error when what SQLite keeps beside the file is deleted,
// one of them or both: who comes next would make them anew, and be granted it.
func TestDeletedBeside(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"-wal"}, {"-shm"}, {"-wal", "-shm"}} {
		for _, next := range []bool{false, true} {
			path := newFile(t)
			d, held := openDriver(t, path), request("k")
			granted(t, d, held)
			for _, name := range names {
				must(t, os.Remove(path+name))
			}
			if next {
				_, err := contend.Try(t.Context(), openDriver(t, path), request("k"))
				t.Logf("without %v another says: %v", names, err)
			}
			fails(t, d, held, path+names[0]+" was deleted or replaced while in use", "end the programs")
		}
	}
}

// Rule: that SQLite deletes both itself, after the last connection of all, is no
// trouble, whatever other files of the program have their inodes then.
func TestNobodyHasItOpen(t *testing.T) {
	path := newFile(t)
	db := openFile(t, path)
	db.SetMaxIdleConns(0)
	d := NewSQLite(db)
	defer d.Close()
	for i := range 5 {
		r := request("k")
		granted(t, d, r)
		waitFor(t, "the -wal is deleted", func() bool { _, err := os.Stat(path + "-wal"); return err != nil })
		var others []*os.File
		for range 20 {
			f, err := os.CreateTemp(filepath.Dir(path), "other")
			must(t, err)
			others = append(others, f)
		}
		if i%2 == 0 { // others may have their own time with it, and the inodes again
			other := request("k")
			db := openFile(t, path)
			refused(t, NewSQLite(db), other)
			must(t, db.Close())
		}
		renewed(t, d, r)
		must(t, contend.Release(t.Context(), d, r))
		for _, f := range others {
			must(t, f.Close())
		}
	}
}

// Rule: an -shm that is cut off is an error, also in the middle of a transaction
// or a read, and ends no program, not even when that closes its database. Whoever
// starts after it has ended finds what was held.
func TestShmIsCutOff(t *testing.T) {
	t.Parallel()
	for when := range cuts {
		t.Run(when, func(t *testing.T) {
			path := newFile(t)
			p := start(t, "cut", path, when, path)
			if said := p.says("cut"); !strings.Contains(said, path+"-shm was cut off while in use; ") {
				t.Errorf("at the moment itself: %s", said)
			}
			for _, what := range []string{"try", "renew", "inspect"} {
				if said := p.says(what); !strings.HasPrefix(said, fmt.Sprint(driver.ClassMisconfigured)) || !strings.Contains(said, path+"-shm was cut off while in use; ") {
					t.Errorf("%s: %s", what, said)
				}
			}
			p.says("alive")
			must(t, p.stdin.Close())
			must(t, p.Wait())
			refused(t, openDriver(t, path), request("k"))
		})
	}
}

// cuts cut an -shm off at one moment or another, and return what a call says then.
var cuts = map[string]func(d *Driver, held contend.Owner, cut func() error) error{
	"between two calls": func(d *Driver, held contend.Owner, cut func() error) error {
		_, err := d.Inspect(context.Background(), held.Key)
		return errors.Join(err, cut(), contend.Release(context.Background(), d, held))
	},
	"in a transaction": func(d *Driver, _ contend.Owner, cut func() error) error {
		return d.writes.do(context.Background(), 1, func(t *tx) error {
			_, err := t.exec(qMark, t.head.boot, t.head.before, t.head.clock, t.head.newest, 0, 0, 0, t.head.wall)
			return errors.Join(err, cut(), t.sql.Commit())
		})
	},
	"in a read": func(d *Driver, held contend.Owner, cut func() error) error {
		return d.read(context.Background(), func(ctx context.Context) error {
			err := cut()
			_, _, err2 := d.look(ctx, held.Claim())
			return errors.Join(err, err2)
		})
	},
}

func init() { parts["cut"] = cutPart }

// cutPart holds a key when the -shm is cut off, and says what comes of it.
func cutPart(db *sql.DB, args []string) error {
	d, held := NewSQLite(db), request("k")
	if _, err := contend.Try(context.Background(), d, held); err != nil {
		return err
	}
	fmt.Println("cut", cuts[args[0]](d, held, func() error { return os.Truncate(args[1]+"-shm", 0) }))
	_, err := contend.Try(context.Background(), d, request("free"))
	fmt.Println("try", d.Classify(err), err)
	contend.Renew(context.Background(), d, []contend.Owner{held}, func(_ int, r driver.Renewal) { err = r.Err })
	fmt.Println("renew", d.Classify(err), err)
	_, err = d.Inspect(context.Background(), "k")
	fmt.Println("inspect", d.Classify(err), err)
	if err := errors.Join(d.Close(), db.Close()); err != nil {
		return err
	}
	fmt.Println("alive")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

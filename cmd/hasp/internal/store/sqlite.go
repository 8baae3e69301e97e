// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	haspdriver "github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/sqldriver"
	sqlite3 "github.com/ncruces/go-sqlite3/driver"
)

// sqliteFile is the path of a SQLite file.
type sqliteFile string

// parseSQLite reads what follows "sqlite:". The path is a path: only ?, # and %
// are special in it.
func parseSQLite(_, rest string) (*URL, error) {
	path, query, _ := strings.Cut(rest, "?")
	u := &URL{}
	if _, err := u.parameters(query); err != nil {
		return nil, err
	}
	if after, ok := strings.CutPrefix(path, "//"); ok {
		if !strings.HasPrefix(after, "/") {
			return nil, errors.New("after sqlite: comes a path: write sqlite:/PATH, or sqlite:PATH when it is relative")
		}
		path = after
	}
	path, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return nil, errors.New("the path of the SQLite file has a % that is not followed by two hexadecimal digits: write %25 for it")
	case path == "":
		return nil, errors.New("the path of the SQLite file is missing")
	case path == ":memory:":
		return nil, errors.New("a lock in memory keeps nobody else away: name a file")
	case strings.ContainsRune(path, 0):
		return nil, errors.New("the path of the SQLite file has a NUL in it")
	}
	u.place = sqliteFile(path)
	return u, nil
}

func (f sqliteFile) open(func() place) (*Store, error) {
	db, err := openSQLite(string(f))
	if err != nil {
		return nil, err
	}
	return &Store{Driver: sqldriver.NewSQLite(db), disconnect: db.Close, Examine: f.disk, kind: doctor.Kind{
		Local: true, Clock: true, Dangers: "a file that is deleted, restored, or on a network file system"}}, nil
}

// disk says when the file is on one that other machines may use, or of which each container has its own.
func (f sqliteFile) disk(context.Context) []haspdriver.Finding {
	dir := filepath.Dir(string(f))
	found := haspdriver.Finding{Level: doctor.Warn, Check: "disk", FencesRepeat: true}
	switch kind := sharedDisk(dir); {
	case kind != "":
		found.Text = "the file is on " + kind + ", which other machines may use, too: " +
			"if two do, there can be two holders, and the file may break. Move it to a local disk, or take a server for locks"
	case layered(dir):
		found.Text = "the file is on overlayfs, as the root of a container is: it keeps apart the processes of this container alone. Another container has " +
			"another file at this path, and both can hold a key. Mount a folder of the host there (docker run -v DIR:DIR)"
	default:
		return nil
	}
	return []haspdriver.Finding{found}
}

func (f sqliteFile) String() string { return "sqlite:" + string(f) }

func (f sqliteFile) inherited(given string) string {
	path, err := filepath.Abs(string(f))
	if err != nil { // the current directory is gone, and so is the file
		path = string(f)
	}
	text := "sqlite:" + strings.NewReplacer("%", "%25", "?", "%3F").Replace(path)
	if _, query, ok := strings.Cut(given, "?"); ok {
		text += "?" + query
	}
	return text
}

func (sqliteFile) secrets() (some, password bool) { return false, false }

func (f sqliteFile) byHand(_ int, statement string) string {
	return shell.Join("sqlite3", "-readonly", string(f), statement)
}

func (sqliteFile) remarks() []string { return nil }

// openSQLite opens a SQLite file. What this user may only read is opened for that:
// to look at locks needs no more, and to lock is refused by SQLite. Later
// connections find it from any directory. The -journal gets the file's permissions:
// a user that may use the one must be able to use the other.
func openSQLite(path string) (*sql.DB, error) {
	if whole, err := filepath.Abs(path); err == nil { // else the current directory is gone, and so is the file
		path = whole
	}
	dsn := sqldriver.SQLiteDSN(path) + "&modeof=" + strings.ReplaceAll(url.QueryEscape(path), "+", "%20")
	if unwritable(path) {
		dsn += "&mode=ro"
	}
	c, err := (&sqlite3.SQLite{}).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

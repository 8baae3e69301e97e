// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/hasplock/hasp/sqldriver"
	sqlite3 "github.com/ncruces/go-sqlite3/driver"
)

// sqliteFile is the path of a SQLite file.
type sqliteFile string

// parseSQLite reads what follows "sqlite:". The path is a path: only ?, # and %
// are special in it. It is made absolute: messages name the very file, and connections find it from any directory.
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
		return nil, errors.New("a lock in memory keeps no other process away: name a file")
	case strings.ContainsRune(path, 0):
		return nil, errors.New("the path of the SQLite file has a NUL in it")
	}
	if whole, err := filepath.Abs(path); err == nil { // else the current directory is gone, and so is the file
		path = whole
	}
	u.place = sqliteFile(path)
	return u, nil
}

func (f sqliteFile) open(*opening) (*Store, error) {
	db, err := openSQLite(string(f))
	if err != nil {
		return nil, err
	}
	return &Store{Driver: owning(sqldriver.NewSQLite(db), db.Close), DB: db}, nil
}

func (f sqliteFile) String() string { return "sqlite:" + string(f) }

func (f sqliteFile) parts() Parts { return Parts{Kind: SQLite, Addrs: []string{string(f)}} }

// openSQLite opens a SQLite file. What this user may only read is opened for that:
// to look at locks needs no more, and to lock is refused by SQLite. The -journal gets the file's permissions:
// a user that may use the one must be able to use the other.
func openSQLite(path string) (*sql.DB, error) {
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

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

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

func (f sqliteFile) open() (*Store, error) {
	db, err := openSQLite(string(f))
	if err != nil {
		return nil, err
	}
	return &Store{Driver: sqldriver.NewSQLite(db), disconnect: db.Close, Examine: f.disk, kind: doctor.Kind{
		Local: true, Clock: true, Dangers: "a file that is deleted, restored, or on a network file system"}}, nil
}

// disk says when the file is on one that other machines may use.
func (f sqliteFile) disk(context.Context) []haspdriver.Finding {
	kind := sharedDisk(filepath.Dir(string(f)))
	if kind == "" {
		return nil
	}
	return []haspdriver.Finding{{Level: doctor.Warn, Check: "disk", FencesRepeat: true, Text: "the file is on " + kind + ", which other machines may use, too: " +
		"if two do, there can be two holders, and the file may break. Move it to a local disk, or take a server for locks"}}
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
// connections find it from any directory.
func openSQLite(path string) (*sql.DB, error) {
	if whole, err := filepath.Abs(path); err == nil { // else the current directory is gone, and so is the file
		path = whole
	}
	dsn := sqldriver.SQLiteDSN(path)
	if unwritable(path) {
		how := "?mode=ro&"
		if info, err := os.Stat(path + "-wal"); unwritable(filepath.Dir(path)) && (errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0) {
			how = "?mode=ro&immutable=1&" // nobody writes, and SQLite could not make its files here
		}
		dsn = strings.Replace(dsn, "?", how, 1)
	}
	c, err := (&sqlite3.SQLite{}).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(&connector{Connector: c, path: path}), nil
}

// connector makes the first connection with the file's own permissions as the
// limit of new files: with it SQLite makes its -wal and -shm, and whoever may use
// the one must be able to use the others. No command runs yet that could inherit
// the limit. Later connections find them.
type connector struct {
	driver.Connector
	path  string
	first sync.Mutex
	open  bool
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	c.first.Lock()
	if c.open {
		c.first.Unlock()
		return c.Connector.Connect(ctx)
	}
	defer c.first.Unlock()
	info, missing := os.Stat(c.path)
	if missing == nil {
		defer limitNewFiles(info.Mode().Perm())()
	}
	conn, err := c.Connector.Connect(ctx)
	if err == nil && missing == nil && info.Size() == 0 { // SQLite makes them with the first write
		_, err = conn.(driver.ExecerContext).ExecContext(ctx, "PRAGMA user_version = 0", nil)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	c.open = err == nil
	return conn, err
}

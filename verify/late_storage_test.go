// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/hasplock/hasp/fence"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/sqldriver"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/redis/go-redis/v9"
)

// storage is what locks are for: named values.
type storage interface {
	write(ctx context.Context, guarded bool, name, value string, fence uint64) error
	read(ctx context.Context, name string) (string, error)
	io.Closer
}

// storages are where the values of TestWakesUpLate are, by kind.
var storages = map[string]func(t *testing.T) string{
	"sqlite": func(t *testing.T) string {
		return made(t, "sqlite", sqldriver.SQLiteDSN(filepath.Join(t.TempDir(), "values.db")))
	},
	"postgres": func(t *testing.T) string {
		return made(t, "postgres", fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", testserver.Postgres(t).Addr()))
	},
	"mariadb": func(t *testing.T) string {
		server := testserver.MariaDB(t).Addr()
		db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/", server))
		if err == nil {
			_, err = db.ExecContext(t.Context(), "CREATE DATABASE late")
		}
		must(t, errors.Join(err, db.Close()))
		return made(t, "mariadb", fmt.Sprintf("root@tcp(%s)/late", server))
	},
	"redis": func(t *testing.T) string { return testserver.Redis(t).Addr() },
	"files": func(t *testing.T) string { return t.TempDir() },
	"http": func(t *testing.T) string {
		var all sync.Map
		values := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				value, err := io.ReadAll(r.Body)
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				all.Store(filepath.Base(r.URL.Path), string(value))
			}
			value, _ := all.Load(filepath.Base(r.URL.Path))
			fmt.Fprint(w, value)
		})
		mux := http.NewServeMux()
		mux.Handle("/plain/", values)
		mux.Handle("/guarded/", fence.Handler(values, &fence.Memory{}, nil))
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		return s.URL
	},
}

// databases are the drivers and dialects of those that have tables.
var databases = map[string]struct {
	driver string
	*fence.Dialect
}{"sqlite": {"sqlite3", fence.SQLite}, "postgres": {"pgx", fence.Postgres}, "mariadb": {"mysql", fence.MySQL}}

// made makes the tables of a database.
func made(t *testing.T, kind, dsn string) string {
	t.Helper()
	s, err := openStorage(kind, dsn)
	must(t, err)
	d := s.(*rows)
	for _, text := range []string{d.guard.Schema(), "CREATE TABLE vals (name VARCHAR(99) PRIMARY KEY, value VARCHAR(99) NOT NULL)"} {
		_, e := d.db.ExecContext(t.Context(), text)
		err = errors.Join(err, e)
	}
	for _, kind := range []string{"guarded", "plain"} {
		for i := range lateKeys {
			_, e := d.db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO vals VALUES ('%s', '')", lateName(kind, i)))
			err = errors.Join(err, e)
		}
	}
	must(t, errors.Join(err, s.Close()))
	return dsn
}

func openStorage(kind, at string) (storage, error) {
	switch kind {
	case "redis":
		rdb := redis.NewClient(&redis.Options{Addr: at})
		return &values{rdb, redisdriver.NewGuard(rdb)}, nil
	case "files":
		return folder(at), nil
	case "http":
		return remote(at), nil
	}
	d := databases[kind]
	db, err := sql.Open(d.driver, at)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	if kind == "sqlite" {
		db.SetMaxOpenConns(1) // others would only wait for it, and in no order
	}
	return &rows{db, fence.Table(d.Dialect, "")}, nil
}

type rows struct {
	db    *sql.DB
	guard *fence.SQL
}

func (r *rows) Close() error { return r.db.Close() }

func (r *rows) write(ctx context.Context, guarded bool, name, value string, n uint64) (err error) {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if guarded {
		if err := r.guard.Write(ctx, tx, name, n); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE vals SET value = '%s' WHERE name = '%s'", value, name)); err != nil {
		return err
	}
	return tx.Commit()
}

func (r *rows) read(ctx context.Context, name string) (value string, err error) {
	return value, r.db.QueryRowContext(ctx, fmt.Sprintf("SELECT value FROM vals WHERE name = '%s'", name)).Scan(&value)
}

type values struct {
	*redis.Client
	guard *redisdriver.Guard
}

func (v *values) write(ctx context.Context, guarded bool, name, value string, n uint64) error {
	if guarded {
		return v.guard.Set(ctx, name, value, 0, n)
	}
	return v.Set(ctx, name, value, 0).Err()
}
func (v *values) read(ctx context.Context, name string) (string, error) {
	return v.Get(ctx, name).Result()
}

type folder string

func (folder) Close() error { return nil }
func (f folder) write(_ context.Context, guarded bool, name, value string, n uint64) error {
	if guarded {
		return fence.WriteFile(filepath.Join(string(f), name), []byte(value), 0o600, n)
	}
	return os.WriteFile(filepath.Join(string(f), name), []byte(value), 0o600)
}

func (f folder) read(_ context.Context, name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(string(f), name))
	return string(data), err
}

type remote string

func (remote) Close() error { return nil }

func (r remote) do(ctx context.Context, base http.RoundTripper, method, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, string(r)+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	res, err := (&http.Client{Transport: base}).Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil {
		err = fence.Refused(res)
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(text), err
}

func (r remote) write(ctx context.Context, guarded bool, name, value string, n uint64) error {
	path := "/plain/"
	if guarded {
		path = "/guarded/"
	}
	_, err := r.do(ctx, fence.Transport{Fence: n}, http.MethodPut, path+name, value)
	return err
}

func (r remote) read(ctx context.Context, name string) (string, error) {
	return r.do(ctx, nil, http.MethodGet, "/plain/"+name, "")
}

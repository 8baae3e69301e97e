// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/fence"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/sqldriver"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/redis/go-redis/v9"
)

var lateRounds = flag.Int("late", 2*lateKeys, "how often a holder wakes up late, for each storage")

const (
	lateEnv  = "HASP_VERIFY_LATE"
	lateKeys = 50 // how many are held by the process that is stopped
)

// Rule: a holder that wakes up after its lease ended, and writes, changes nothing that a later holder
// wrote, if a guard compares the fences; and without one it does.
func TestWakesUpLate(t *testing.T) {
	server := testserver.Redis(t)
	locks, adm := server.Addr(), admin(t, server)
	for kind, place := range storages {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			job := lateJob{kind, place(t), locks}
			s, err := openStorage(kind, job.At)
			must(t, err)
			t.Cleanup(func() { _ = s.Close() })
			c := Locks(t, locks, nil)
			rounds, guarded, plain := 0, 0, 0
			for ; rounds < *lateRounds; rounds += lateKeys {
				g, p := job.round(t, s, c, adm)
				guarded, plain = guarded+g, plain+p
			}
			if guarded != 0 || plain == 0 {
				t.Errorf("of %d late writes the guard let in %d; without it %d changed something", rounds, guarded, plain)
			}
		})
	}
}

// lateJob is what the process that is stopped is told.
type lateJob struct{ Kind, At, Locks string }

// round has a process hold all keys, and stops it; writes what they guard as their next holder; and has
// the process go on and write. It returns how many of its writes had an effect, with a guard and without.
func (j lateJob) round(t *testing.T, s storage, c *hasp.Client, adm *redis.Client) (guarded, plain int) {
	t.Helper()
	said := make(chan []bool, 2)
	p, err := player.Spawn(1, lateEnv, j, func(refused []bool) { said <- refused })
	must(t, err)
	t.Cleanup(p.Kill)
	next := func() []bool {
		select {
		case refused := <-said:
			return refused
		case <-p.Ended:
		}
		select {
		case refused := <-said:
			return refused
		default:
			t.Fatalf("the holder ended: %s", p.Last())
			panic("unreachable")
		}
	}
	next()
	must(t, p.Pause())
	values := make([]string, lateKeys)
	err = eachKey(func(i int) error {
		if n, err := adm.PExpire(t.Context(), "lock:"+lateName(j.Kind, i), time.Millisecond).Result(); err != nil || !n { // its lease ends
			return fmt.Errorf("there is no lease to end: %w", err)
		}
		lease, err := c.Mutex(lateName(j.Kind, i), &hasp.LockOptions{TTL: time.Hour}).Lock(t.Context())
		if err != nil {
			return err
		}
		values[i] = fmt.Sprint("later ", lease.Fence())
		return errors.Join(s.write(t.Context(), true, lateName("guarded", i), values[i], lease.Fence()),
			s.write(t.Context(), false, lateName("plain", i), values[i], lease.Fence()), lease.Release())
	})
	must(t, err)
	p.Send("write")
	must(t, p.Resume())
	refused := next()
	for i, want := range values {
		with, err := s.read(t.Context(), lateName("guarded", i))
		without, e := s.read(t.Context(), lateName("plain", i))
		must(t, errors.Join(err, e))
		if with != want || !refused[i] {
			guarded++
		}
		if without != want {
			plain++
		}
	}
	return guarded, plain
}

func lateName(kind string, i int) string { return fmt.Sprintf("%s-%d", kind, i) }

// eachKey does something for each key at once.
func eachKey(do func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, lateKeys)
	for i := range errs {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// lateMain turns this process into the holder that is stopped: it locks all keys, says so, and writes once it is
// told to, as if it had looked at its leases before it was stopped.
func lateMain() {
	player.Main(lateEnv, func(in io.Reader, out io.Writer) error {
		var j lateJob
		lines := bufio.NewScanner(in)
		if lines.Scan(); json.Unmarshal(lines.Bytes(), &j) != nil {
			return fmt.Errorf("no job: %q, %w", lines.Text(), lines.Err())
		}
		s, err := openStorage(j.Kind, j.At)
		if err != nil {
			return err
		}
		c, err := hasp.New(redisdriver.New(redis.NewClient(&redis.Options{Addr: j.Locks, PoolSize: lateKeys, ReadTimeout: soon}), nil), nil)
		if err != nil {
			return err
		}
		leases, refused, say := make([]*hasp.Lease, lateKeys), make([]bool, lateKeys), json.NewEncoder(out)
		err = eachKey(func(i int) (err error) {
			leases[i], err = c.Mutex(lateName(j.Kind, i), &hasp.LockOptions{TTL: time.Hour}).Lock(context.Background())
			return err
		})
		if err = errors.Join(err, say.Encode(refused)); err != nil {
			return err
		}
		lines.Scan()
		err = eachKey(func(i int) error {
			n := leases[i].Fence()
			value := fmt.Sprint("late ", n)
			err := s.write(context.Background(), true, lateName("guarded", i), value, n)
			if refused[i] = errors.Is(err, fence.ErrStale); refused[i] {
				err = nil
			}
			return errors.Join(err, s.write(context.Background(), false, lateName("plain", i), value, n))
		})
		return errors.Join(err, say.Encode(refused))
	})
}

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

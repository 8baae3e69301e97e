// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
)

// Rule: one connection is enough for everything.
func oneConnection(t *testing.T, d database) {
	db := d.pool(t)
	db.SetMaxOpenConns(1)
	s := d.wrap(db)
	a, b, c := request("k"), queued(request("k")), request("k")
	c.Mode, c.Limit = driver.Shared, 2
	granted(t, s, a)
	try(t, s, b)
	try(t, s, queued(c))
	s.Renew(t.Context(), []driver.RenewRequest{a.Renewal(), b.Renewal(), queued(c).Renewal()}, func(_ int, r driver.Renewal) { must(t, r.Err) })
	must(t, contend.Release(t.Context(), s, a))
	granted(t, s, b)
	must(t, contend.Release(t.Context(), s, b))
	granted(t, s, queued(c))
	for info, err := range s.List(t.Context(), "") {
		must(t, err)
		failIf(t, info.Leases != 1, "%+v", info)
	}
	must(t, s.Close())
}

// renewals renews at once, and returns what came of each request that was answered.
func renewals(ctx context.Context, s *Server, rs []driver.RenewRequest) map[int]driver.Renewal {
	var mu sync.Mutex
	got := map[int]driver.Renewal{}
	s.Renew(ctx, rs, func(i int, r driver.Renewal) {
		mu.Lock()
		defer mu.Unlock()
		got[i] = r
	})
	return got
}

// Rule: a thousand leases are renewed in a few requests, each those that are held alone.
func renewMany(t *testing.T, d database) {
	s := d.open(t)
	const n = 300
	var rs []driver.RenewRequest
	held := map[int]bool{}
	for i := range n {
		r := request(fmt.Sprintf("\x00k%d\xff", i%(n/2)))
		if i < n/2 { // of each key one owner has it, and one has it not
			r.TTL = 10 * time.Minute // a busy machine takes long for so many
			granted(t, s, r)
			held[i] = true
			r.TTL = time.Hour
		}
		rs = append(rs, r.Renewal())
	}
	wanted := request(rs[7].Key)
	try(t, s, queued(wanted))
	far, p := d.through(t)
	s = far.open(t)
	_, err := s.Inspect(t.Context(), "warm")
	must(t, err)
	sent := counting(p)
	got := renewals(t.Context(), s, rs[:n/2])
	if n := sent.Load(); n > 60 {
		t.Errorf("it sent %d requests", n)
	}
	for i, r := range renewals(t.Context(), s, rs[n/2:]) {
		got[n/2+i] = r
	}
	for i := range n {
		r := got[i]
		if held[i] && (r.Err != nil || r.TTL < 50*time.Minute || r.Wanted != (i == 7)) || !held[i] && !errors.Is(r.Err, driver.ErrNotHeld) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	info := inspect(t, s, rs[3].Key)
	failIf(t, info.Left < 50*time.Minute || info.Left > time.Hour, "%+v", info)
}

// Rule: a mark that its holder took over is on the key again when nobody worked under the
// lease, also where the release is all that there was.
func unusedKeepsTheMark(t *testing.T, d database) {
	s := d.open(t)
	first, second, third := settled(request("k")), settled(request("k")), settled(request("k"))
	granted(t, s, first)
	first.End, second.End = driver.EndUnfinished, driver.EndUnused
	must(t, contend.Release(t.Context(), s, first))
	for _, r := range []contend.Owner{second, third} {
		if res := granted(t, s, r); !res.Abandoned {
			t.Errorf("the mark is gone: %+v", res)
		}
		must(t, contend.Release(t.Context(), s, r))
	}
	if res := granted(t, s, request("k")); res.Abandoned {
		t.Error("the mark stays after a holder that finished")
	}
}

// Rule: a key's row stays for a minute after all that is in it, and not much longer.
func keptLongEnough(t *testing.T, d database) {
	s, db := d.open(t), d.pool(t)
	const soon = "SELECT count(*) FROM hasp_key k WHERE keep * 60000000000 < 64000000000 + " +
		"(SELECT COALESCE(MAX(expires), 0) FROM (SELECT lock_key, expires FROM hasp_lease UNION ALL SELECT lock_key, expires FROM hasp_key WHERE held = 1) l WHERE l.lock_key = k.lock_key)"
	late := "SELECT count(*) FROM hasp_key WHERE keep > " + d.now() + " / 60000000000 + 20"
	check := func(what, text string) {
		t.Helper()
		if n := number(t, db, text); n != 0 {
			t.Errorf("%s: %d rows are swept too soon, or too late", what, n)
		}
	}
	for name, change := range map[string]func(r *contend.Owner){
		"exclusive": func(*contend.Owner) {},
		"shared":    func(r *contend.Owner) { r.Mode = driver.Shared },
		"a place":   func(r *contend.Owner) { r.Queue, r.Patience = true, 2*time.Hour },
	} {
		r := request(name)
		r.TTL = time.Hour
		change(&r)
		if r.Queue {
			granted(t, s, request(name))
		}
		try(t, s, r)
		check(name, soon)
		r.TTL, r.Patience = 3*time.Hour, 4*time.Hour
		s.Renew(t.Context(), []driver.RenewRequest{r.Renewal(), request(name).Renewal()}, func(int, driver.Renewal) {})
		check(name+", renewed", soon)
		must(t, contend.Release(t.Context(), s, r))
		check(name+", released", soon)
		check(name+", released", late)
	}
	quick := settled(request("quick"))
	quick.TTL = time.Hour
	granted(t, s, quick)
	check("at once", soon)
	must(t, contend.Release(t.Context(), s, quick))
	check("at once", soon)
	check("at once", late)
}

// now is the server's clock.
func (d database) now() string {
	if d.postgres() {
		return postgresNow
	}
	return mysqlNow
}

// limited is the database for a user with the privileges that the documentation names, and no more.
func (d database) limited(t testing.TB, db *sql.DB) (as database, name string) {
	name = fmt.Sprint("u", databases.Add(1))
	var grants []string
	if d.postgres() {
		schema := d.dsn[strings.LastIndex(d.dsn, "=")+1:]
		grants = []string{"CREATE ROLE NAME LOGIN", "GRANT USAGE ON SCHEMA " + schema + " TO NAME",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON hasp_key, hasp_lease TO NAME", "GRANT SELECT ON hasp_meta TO NAME", "GRANT USAGE ON SEQUENCE hasp_fence TO NAME"}
		d.dsn = strings.Replace(d.dsn, "postgres@", name+"@", 1)
	} else {
		grants = []string{"CREATE USER NAME", "GRANT SELECT, INSERT, UPDATE, DELETE ON hasp_key TO NAME",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON hasp_lease TO NAME", "GRANT SELECT, UPDATE ON hasp_meta TO NAME"}
		d.dsn = strings.Replace(d.dsn, "root@", name+"@", 1)
	}
	for _, g := range grants {
		run(t, db, strings.ReplaceAll(g, "NAME", name))
	}
	return d, name
}

// Rule: with the privileges that the documentation names, and no more, everything works
// but Init.
func leastPrivileges(t *testing.T, d database) {
	db := d.pool(t)
	d, name := d.limited(t, db)
	s := d.open(t)
	a, b := request("k"), queued(request("k"))
	granted(t, s, a)
	try(t, s, b)
	s.Renew(t.Context(), []driver.RenewRequest{a.Renewal(), b.Renewal()}, func(_ int, r driver.Renewal) { must(t, r.Err) })
	must(t, contend.Release(t.Context(), s, a))
	granted(t, s, b)
	must(t, contend.Release(t.Context(), s, settled(b)))
	sweepNow(t, s, db)
	_, err := s.Inspect(t.Context(), "k")
	must(t, err)
	run(t, db, "REVOKE UPDATE ON hasp_key FROM "+name)
	if _, err := contend.Try(t.Context(), s, request("new")); s.Classify(err) != driver.ClassDenied {
		t.Errorf("without a privilege: %v (class %d)", err, s.Classify(err))
	}
}

// Rule: a process that stops within a transaction keeps others from that one key: leases of other
// keys are renewed, although they are renewed together with that one.
func renewBesideLocked(t *testing.T, d database) {
	s := d.open(t)
	var rs []driver.RenewRequest
	for i := range 6 {
		r := request(fmt.Sprint("k", i))
		granted(t, s, r)
		r.TTL = time.Hour
		rs = append(rs, r.Renewal())
	}
	tx, err := d.pool(t).BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM hasp_key WHERE lock_key = 'k3' FOR UPDATE")
	must(t, err)
	renewBeside(t, s, rs, map[int]bool{3: true})
}

// renewBeside renews leases, some of whose keys somebody keeps, and ends once all others are renewed.
func renewBeside(t *testing.T, s *Server, rs []driver.RenewRequest, locked map[int]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	free := len(rs) - len(locked)
	s.Renew(ctx, rs, func(i int, r driver.Renewal) {
		mu.Lock()
		defer mu.Unlock()
		if locked[i] {
			if ctx.Err() == nil || r.Err == nil {
				t.Errorf("%s: %+v", rs[i].Key, r)
			}
			return
		}
		if r.Err != nil || !rs[i].Queue && r.TTL < 50*time.Minute {
			t.Errorf("%s: %+v", rs[i].Key, r)
		}
		if free--; free == 0 {
			cancel()
		}
	})
	failIf(t, free != 0, "%d are not renewed", free)
}

// Rule: however many keys somebody keeps, leases that others wait for, places, and leases of another TTL, are renewed.
func renewBesideManyLocked(t *testing.T, d database) {
	s := d.open(t)
	var rs []driver.RenewRequest
	locked := make(map[int]bool)
	for i := range 12 {
		r := request(fmt.Sprintf("k%02d", i))
		granted(t, s, r)
		waiter := queued(request(r.Key))
		waiter.Patience = time.Minute
		if i%2 == 0 {
			try(t, s, waiter)
		}
		r.TTL = time.Hour
		if i == 11 {
			r.TTL = 2 * time.Hour
		}
		if i < 8 {
			locked[i] = true
		}
		if i == 10 {
			waiter.Patience = time.Hour
			r = waiter
		}
		rs = append(rs, r.Renewal())
	}
	tx, err := d.pool(t).BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	for i := range 8 { // one by one: of several MariaDB locks all that it looks at
		_, err = tx.ExecContext(t.Context(), fmt.Sprintf("SELECT 1 FROM hasp_key WHERE lock_key = 'k%02d' FOR UPDATE", i))
		must(t, err)
	}
	renewBeside(t, s, rs, locked)
}

// Rule: a process that stops while it sweeps, wherever that is, keeps nobody from a key.
func stoppedSweep(t *testing.T, d database) {
	near, db := d.open(t), d.pool(t)
	far, p := d.through(t)
	for n := int64(1); ; n++ {
		var keys []contend.Owner
		for i := range 3 {
			keys = append(keys, settled(request(fmt.Sprint("k", n, i))))
			granted(t, near, keys[i])
			must(t, contend.Release(t.Context(), near, keys[i]))
		}
		near.under.Wait() // it sweeps, too
		run(t, db, "UPDATE hasp_key SET keep = 0")
		s := far.open(t)
		_, err := s.Inspect(t.Context(), "warm") // it is connected
		must(t, err)
		var sent atomic.Int64
		stopped, swept := make(chan struct{}), make(chan struct{})
		p.Hook(func(c faultproxy.Chunk) bool {
			if c.Dir != faultproxy.Up {
				return false
			}
			at := sent.Add(1)
			if at == n {
				close(stopped)
			}
			return at >= n
		})
		ctx, goOn := context.WithCancel(t.Context())
		go func() {
			defer close(swept)
			_, _ = s.once(ctx, s.db.Conn, func(c *conn) error { return c.sweep(8) })
		}()
		done := false
		select {
		case <-stopped:
		case <-swept:
			done = true
		}
		if open := number(t, db, d.openTransactions()); !done && open != 0 {
			t.Errorf("before request %d of the sweep %d transactions are open", n, open)
		}
		for _, r := range keys {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if res, err := contend.Try(ctx, near, r); err != nil || !res.Granted {
				t.Errorf("stopped before request %d: %s: %+v, %v", n, r.Key, res, err)
				cancel()
				break
			}
			cancel()
		}
		goOn()
		<-swept
		p.Hook(nil)
		if done || t.Failed() {
			return
		}
	}
}

// openTransactions counts those that wait for their client, and hold locks.
func (d database) openTransactions() string {
	if d.postgres() {
		return "SELECT count(*) FROM pg_stat_activity a WHERE state LIKE 'idle in transaction%' AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.relation = 'hasp_key'::regclass)"
	}
	return "SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()"
}

// Rule: whoever has to wait for a key's row gets it in the order in which they came, also beside others who come later.
func rowInOrder(t *testing.T, d database) {
	s, db := d.open(t), d.pool(t)
	granted(t, s, request("k"))
	const waiters = 12
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	arrive := func(i int, within func()) {
		var id atomic.Int64 // of its connection
		wg.Go(func() {
			_, err := s.once(context.Background(), s.db.Conn, func(c *conn) error {
				n, err := d.connection(c)
				if err != nil {
					return err
				}
				id.Store(n)
				return c.locked(request("k").Claim(), func(k *keyTx) error {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					if within != nil {
						within()
					}
					k.dirty = true
					return nil
				})
			})
			if err != nil {
				t.Error(err)
			}
		})
		waitFor(t, "it is in, or waits", func() bool {
			mu.Lock()
			got := len(order)
			mu.Unlock()
			return got > i || id.Load() != 0 && blocked(t, db, d, id.Load())
		})
	}
	free := make(chan struct{}, waiters)
	arrive(0, func() { <-free })
	for i := 1; i < waiters; i++ {
		arrive(i, func() { <-free })
		if i >= waiters/2 { // one goes, and the next one comes
			free <- struct{}{}
		}
	}
	for range waiters / 2 {
		free <- struct{}{}
	}
	wg.Wait()
	failIf(t, !slices.IsSorted(order), "they got the row in the order %v", order)
}

// connection returns the database's number of a connection.
func (d database) connection(c *conn) (n int64, err error) {
	text := "SELECT CONNECTION_ID()"
	if d.postgres() {
		text = "SELECT pg_backend_pid()"
	}
	err = c.sql.QueryRowContext(c.ctx, text).Scan(&n)
	return n, err
}

// blocked reports whether a connection waits for a lock.
func blocked(t testing.TB, db *sql.DB, d database, id int64) bool {
	t.Helper()
	if d.postgres() {
		return number(t, db, fmt.Sprintf("SELECT count(*) FROM pg_locks WHERE pid = %d AND NOT granted", id)) > 0
	}
	return regexp.MustCompile(fmt.Sprintf(`\nLOCK WAIT .*\n\w+ thread id %d,`, id)).MatchString(innodb(t, db))
}

// innodb is what InnoDB says of its transactions now. information_schema.innodb_trx is as old as its last reader.
func innodb(t testing.TB, db *sql.DB) (status string) {
	t.Helper()
	var kind, name string
	must(t, db.QueryRowContext(context.Background(), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status))
	return status
}

// Rule: where the caller's own queries have all connections of its pool the error says so, and blames no server.
func busyPool(t *testing.T, d database) {
	db := d.pool(t)
	db.SetMaxOpenConns(1)
	s := d.wrap(db)
	r := request("k")
	granted(t, s, r)
	slow, err := db.Conn(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	waits := db.Stats().WaitCount
	go func() { // until Try waits
		for ctx.Err() == nil && db.Stats().WaitCount == waits {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err = contend.Try(ctx, s, r)
	cancel()
	if err == nil || !driver.IsNotSent(err) || s.Classify(err) != driver.ClassUnreachable ||
		!strings.Contains(err.Error(), "connection of the pool, 1 of 1 in use") || strings.Contains(err.Error(), "the server does not answer") {
		t.Errorf("%v (%v)", err, s.Classify(err))
	}
	must(t, slow.Close())
	must(t, contend.Release(t.Context(), s, r))
	must(t, s.Close())
}

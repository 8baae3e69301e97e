// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pgxlisten_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/sqldriver/pgxlisten"
	"github.com/jackc/pgx/v5"
)

func claim(key string) driver.TryRequest {
	return driver.TryRequest{Claim: driver.Claim{Key: key, Owner: rand.Text()}, TTL: time.Minute, Queue: true, Patience: time.Minute}
}

func try(t testing.TB, d driver.Driver, r driver.TryRequest) driver.Result {
	t.Helper()
	res, err := d.Try(t.Context(), r)
	must(t, err)
	return res
}

func release(t testing.TB, d driver.Driver, r driver.TryRequest) {
	t.Helper()
	must(t, d.Release(t.Context(), driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, Settled: true}))
}

func watch(t testing.TB, d driver.Driver, r driver.TryRequest) <-chan driver.Hint {
	t.Helper()
	ch, err := d.Watch(t.Context(), r.Claim)
	must(t, err)
	return ch
}

// comes waits for a hint.
func comes(t testing.TB, ch <-chan driver.Hint, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(time.Minute):
		t.Fatalf("no hint: %s", what)
	}
}

// newDatabase makes a database of its own, with the tables: a pooler passes on no
// search_path.
func newDatabase(t testing.TB, server *testserver.Server) *pgx.ConnConfig {
	t.Helper()
	c := config(t, server, "public")
	name := fmt.Sprint("d", schemas.Add(1))
	_, err := pool(t, c).ExecContext(t.Context(), "CREATE DATABASE "+name)
	must(t, err)
	c.Database = name
	must(t, sqldriver.NewPostgres(pool(t, c), nil).Init(t.Context()))
	return c
}

// behind returns the config of connections through a pooler.
func behind(t testing.TB, pooler *testserver.Server, c *pgx.ConnConfig) *pgx.ConnConfig {
	t.Helper()
	c = c.Copy()
	c.Port = uint16(pooler.Port())
	c.DefaultQueryExecMode = pgx.QueryExecModeExec // no prepared statements there
	return c
}

// Rule: behind a pooler no message is believed in, and waiters poll; with a listener that
// leads past it they need not.
func TestPooler(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	pooler := testserver.PgBouncer(t, server)
	c := newDatabase(t, server)
	far := behind(t, pooler, c)
	for _, listener := range []*pgx.ConnConfig{far, c} {
		d := sqldriver.NewPostgres(pool(t, far), &sqldriver.PostgresOptions{Listener: pgxlisten.New(listener)})
		a, b := claim("k"), claim("k")
		if !try(t, d, a).Granted {
			t.Fatal("a free key was refused")
		}
		ch := watch(t, d, b)
		if believes := listener == c; (ch != nil) != believes {
			t.Fatalf("hints: %v, want %v", ch != nil, believes)
		}
		res := try(t, d, b)
		if res.Granted || (res.RetryIn > time.Second) != (ch != nil) {
			t.Fatalf("%+v", res)
		}
		release(t, d, a)
		if ch != nil {
			comes(t, ch, "the key was released")
		}
		if !try(t, d, b).Granted {
			t.Fatal("its turn has come, and it is refused")
		}
		release(t, d, b)
		must(t, d.Close())
	}
}

// Rule: behind a pooler two processes hold one advisory lock of a session, since theirs may be the same; of hasp's lock one is the holder.
func TestPoolerBesideAnAdvisoryLock(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	c := behind(t, testserver.PgBouncer(t, server, "default_pool_size = 1"), newDatabase(t, server))
	advisory, granted := 0, 0
	for range 2 {
		db := pool(t, c)
		var got bool
		must(t, db.QueryRowContext(t.Context(), "SELECT pg_try_advisory_lock(42)").Scan(&got))
		if got {
			advisory++
		}
		if try(t, sqldriver.NewPostgres(db, nil), claim("k")).Granted {
			granted++
		}
	}
	if advisory != 2 || granted != 1 {
		t.Errorf("of two processes %d hold the advisory lock, and %d hasp's", advisory, granted)
	}
}

// Rule: through a pooler that gives each transaction another session, an engine without a
// listener does what it does without one.
func TestPoolerCases(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	pooler := testserver.PgBouncer(t, server)
	h := drivertest.Harness{Parallel: true, TTL: time.Second, New: func(t testing.TB) drivertest.Store {
		c := behind(t, pooler, newDatabase(t, server))
		return drivertest.Store{Open: func() driver.Driver { return sqldriver.NewPostgres(pool(t, c), nil) }}
	}}
	some := map[string]bool{"QueueIsInOrder": true, "DeadHolderHandsOn": true, "WriterIsNotStarved": true, "RenewKeepsThePlace": true,
		"HostileKeys": true, "HostileLabels": true, "NoGoroutineStays": true}
	for _, c := range drivertest.Cases() {
		if some[c.Name] {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, h)
			})
		}
	}
}

// Rule: when the connection that hears is lost, all who wait ask, and poll; once there is
// another they get hints again.
func TestListenerIsLost(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	c := newSchema(t, server)
	d := open(t, c)
	defer func() { must(t, d.Close()) }()
	db := pool(t, c)
	a, b := claim("k"), claim("k")
	try(t, d, a)
	ch := watch(t, d, b)
	if res := try(t, d, b); res.RetryIn <= time.Second {
		t.Fatalf("it has hints, and polls: %+v", res)
	}
	var ended bool
	must(t, db.QueryRowContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%SHOW transaction_read_only' AND pid <> pg_backend_pid()").Scan(&ended))
	comes(t, ch, "the connection is lost")
	for start := time.Now(); watch(t, d, b) == nil; time.Sleep(10 * time.Millisecond) {
		if res := try(t, d, b); res.RetryIn > time.Second && watch(t, d, b) == nil {
			t.Fatalf("it has no hints, and does not poll: %+v", res)
		}
		if time.Since(start) > time.Minute {
			t.Fatal("no other connection is made")
		}
	}
	release(t, d, a)
	comes(t, ch, "the key was released")
	if !try(t, d, b).Granted {
		t.Fatal("its turn has come, and it is refused")
	}
}

// Rule: a connection that hears nothing any more, and is not closed, is noticed while somebody waits: all ask, and poll.
func TestListenerIsHalfOpen(t *testing.T) {
	t.Parallel()
	c := newSchema(t, testserver.Postgres(t))
	link := faultproxy.New(t, fmt.Sprintf("%s:%d", c.Host, c.Port))
	far := c.Copy()
	_, err := fmt.Sscanf(link.Addr(), "127.0.0.1:%d", &far.Port)
	must(t, err)
	d := sqldriver.NewPostgres(pool(t, c), &sqldriver.PostgresOptions{Listener: pgxlisten.New(far)})
	defer func() { must(t, d.Close()) }()
	a, b := claim("k"), claim("k")
	try(t, d, a)
	ch := watch(t, d, b)
	if ch == nil {
		t.Fatal("it gives no hints")
	}
	try(t, d, b)
	link.Swallow(true, true)
	comes(t, ch, "the link swallows everything")
	if res := try(t, d, b); res.RetryIn > time.Second || res.RetryIn <= 0 {
		t.Errorf("it does not poll: %+v", res)
	}
	link.Reconnect()
}

// Rule: when another server takes over behind the address, and the old one stands, the connection to the old one is no
// longer listened on: all who wait ask, and get hints from the new one.
func TestListenerStandsOnTheOldServer(t *testing.T) {
	t.Parallel()
	old := testserver.Postgres(t, testserver.PostgresReplicates...)
	c := newSchema(t, old)
	standby := testserver.PostgresStandby(t, old)
	after := config(t, standby, c.RuntimeParams["search_path"])
	far, address := c.Copy(), faultproxy.New(t, old.Addr())
	_, err := fmt.Sscanf(address.Addr(), "127.0.0.1:%d", &far.Port)
	must(t, err)
	d := open(t, far)
	defer func() { must(t, d.Close()) }()
	a, b := claim("k"), claim("k")
	try(t, d, a)
	ch := watch(t, d, b)
	if ch == nil {
		t.Fatal("it gives no hints")
	}
	try(t, d, b)

	admin, other := pool(t, c), pool(t, after)
	_, err = admin.ExecContext(t.Context(), "ALTER SYSTEM SET default_transaction_read_only = on")
	must(t, err)
	var written string
	must(t, admin.QueryRowContext(t.Context(), "SELECT pg_current_wal_lsn() FROM pg_reload_conf()").Scan(&written))
	comes(t, ch, "the server takes no writes")
	if ch := watch(t, d, claim("k")); ch != nil {
		t.Error("it gives hints, connected to a server that takes no writes")
	}
	for here := false; !here; {
		must(t, other.QueryRowContext(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", written).Scan(&here))
	}
	_, err = other.ExecContext(t.Context(), "SELECT pg_promote()")
	must(t, err)
	address.Retarget(standby.Addr())
	for hinted := false; !hinted; time.Sleep(10 * time.Millisecond) {
		hinted = try(t, d, b).RetryIn > time.Second && watch(t, d, b) != nil
	}
	release(t, sqldriver.NewPostgres(other, &sqldriver.PostgresOptions{Listener: pgxlisten.New(after)}), a)
	comes(t, ch, "the key was released at the new server")
	if !try(t, d, b).Granted {
		t.Error("its turn has come, and it is refused")
	}
}

// nobody is a listener that cannot connect.
type nobody struct{}

func (nobody) Listen(context.Context, string, func(string)) error { return context.DeadlineExceeded }

// Rule: a listener that cannot connect costs the hints, and nothing else.
func TestListenerThatCannotConnect(t *testing.T) {
	t.Parallel()
	c := newSchema(t, testserver.Postgres(t))
	d := sqldriver.NewPostgres(pool(t, c), &sqldriver.PostgresOptions{Listener: nobody{}})
	defer func() { must(t, d.Close()) }()
	a, b := claim("k"), claim("k")
	try(t, d, a)
	if ch := watch(t, d, b); ch != nil {
		t.Error("it gives hints")
	}
	if res := try(t, d, b); res.RetryIn > time.Second || res.RetryIn <= 0 {
		t.Errorf("it does not poll: %+v", res)
	}
}

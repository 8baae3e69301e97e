// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pgxlisten_test

import (
	"context"
	sqldrv "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/sqldriver/pgxlisten"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// far opens a driver whose locks, and not its hints, go over a link that can be cut.
func far(t testing.TB, c *pgx.ConnConfig) (*sqldriver.Server, *faultproxy.Proxy) {
	t.Helper()
	p := faultproxy.New(t, fmt.Sprintf("%s:%d", c.Host, c.Port))
	link := c.Copy()
	_, err := fmt.Sscanf(p.Addr(), "127.0.0.1:%d", &link.Port)
	must(t, err)
	d := sqldriver.NewPostgres(pool(t, link), &sqldriver.PostgresOptions{Listener: pgxlisten.New(c)})
	t.Cleanup(func() { must(t, d.Close()) })
	return d, p
}

// Rule: a handoff is a look and a write of who joins, a release, and a look and a write of who is next.
func TestFewRequests(t *testing.T) {
	c := newSchema(t, testserver.Postgres(t))
	d, p := far(t, c)
	var sent atomic.Int64
	p.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Up {
			sent.Add(1)
		}
		return false
	})
	holder := claim("k")
	try(t, d, holder)
	least := int64(1 << 30)
	for range 12 {
		next := claim("k")
		ch := watch(t, d, next)
		sent.Store(0)
		try(t, d, next)
		release(t, d, holder)
		comes(t, ch, "the key was released")
		if !try(t, d, next).Granted {
			t.Fatal("its turn has come, and it is refused")
		}
		least = min(least, sent.Load())
		holder = next
	}
	if most := int64(7); least > most { // 5, and what a sweep sends beside; one after the other they are 25
		t.Errorf("a handoff took %d requests, want %d", least, most)
	}
}

// Rule: wherever the link breaks in statements that are sent together, a request that is said not to
// have been sent left nothing, one that was answered is as it was answered, and asking again puts it right.
func TestCutPipeline(t *testing.T) {
	c := newSchema(t, testserver.Postgres(t))
	near := open(t, c)
	defer func() { must(t, near.Close()) }()
	d, p := far(t, c)
	for _, shared := range []bool{false, true} {
		for _, dir := range []faultproxy.Direction{faultproxy.Up, faultproxy.Down} {
			for n, happened := int64(1), true; happened; n++ {
				r := claim(fmt.Sprint("k", shared, dir, n))
				if shared {
					r.Mode, r.Limit = driver.Shared, 2
				} else {
					try(t, near, claim(r.Key)) // it has to wait
				}
				_, err := d.Inspect(t.Context(), "warm") // it is connected
				must(t, err)
				var seen atomic.Int64
				over := make(chan struct{})
				p.Hook(func(c faultproxy.Chunk) bool {
					if c.Dir != dir || seen.Add(1) != n {
						return false
					}
					go func() { // within the hook it would wait for itself
						p.Reset()
						close(over)
					}()
					return true
				})
				res, err := d.Try(t.Context(), r)
				if happened = seen.Load() >= n; happened {
					<-over
				}
				p.Hook(nil)
				cutTried(t, near, r, res, err, happened)
			}
		}
	}
}

func cutTried(t *testing.T, near driver.Driver, r driver.TryRequest, res driver.Result, err error, happened bool) {
	t.Helper()
	info, e := near.Inspect(t.Context(), r.Key)
	must(t, e)
	there := slices.ContainsFunc(info.Holders, func(l driver.Holding) bool { return l.Holder.Owner == r.Owner }) ||
		slices.ContainsFunc(info.Queue, func(h driver.Holder) bool { return h.Owner == r.Owner })
	switch {
	case err == nil && !there:
		t.Errorf("%s: answered %+v, and nothing is there", r.Key, res)
	case driver.IsNotSent(err) && there:
		t.Errorf("%s: it was said not to be sent (%v), and is there", r.Key, err)
	case err != nil && !happened:
		t.Errorf("%s: it fails without a cut: %v", r.Key, err)
	}
	again := try(t, near, r)
	if again.Granted != (r.Mode == driver.Shared) || again.Granted && res.Granted && again.Fence != res.Fence {
		t.Errorf("%s: asked again: %+v, before %+v", r.Key, again, res)
	}
	release(t, near, r)
}

// Rule: a connection of another kind is left alone, and one that is closed says that nothing was sent.
func TestPipelineOfOthers(t *testing.T) {
	c := newSchema(t, testserver.Postgres(t))
	l := pgxlisten.New(c)
	steps := []sqldriver.Step{{Text: "SELECT 1"}, {Text: "SELECT $1::text", Args: []any{"x"}}}
	if done, err := l.Pipeline(t.Context(), struct{}{}, steps); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	conn, err := pool(t, c).Conn(t.Context())
	must(t, err)
	defer conn.Close()
	_ = conn.Raw(func(raw any) error {
		if done, err := l.Pipeline(t.Context(), raw, steps); !done || err != nil {
			t.Errorf("%v, %v", done, err)
		}
		bad := append(steps, sqldriver.Step{Text: "SELECT 1 / $1::int", Args: []any{0}})
		var state interface{ SQLState() string }
		if done, err := l.Pipeline(t.Context(), raw, bad); !done || !errors.As(err, &state) || state.SQLState() != "22012" {
			t.Errorf("%v, %v", done, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if done, err := l.Pipeline(ctx, raw, steps); !done || !errors.Is(err, sqldrv.ErrBadConn) {
			t.Errorf("%v, %v", done, err)
		}
		return sqldrv.ErrBadConn
	})
}

// Rule: while a message is under way between a client and the server no transaction waits for it, which would keep a key locked.
func TestNoLockOverTheNetwork(t *testing.T) {
	t.Parallel()
	c := newSchema(t, testserver.Postgres(t))
	near, db := open(t, c), pool(t, c)
	t.Cleanup(func() { must(t, near.Close()) })
	d, p := far(t, c)
	var locked atomic.Int64
	p.Hook(func(faultproxy.Chunk) bool {
		var waits int
		err := db.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'").Scan(&waits)
		if err != nil || waits != 0 {
			locked.Add(1)
		}
		return false
	})
	none := func(what string) {
		t.Helper()
		if n := locked.Swap(0); n > 0 {
			t.Errorf("%s: a transaction waited for %d messages", what, n)
		}
	}
	holder, first, second := claim("k"), claim("k"), claim("k")
	try(t, near, holder)
	locked.Store(0)
	first.Patience = 10 * time.Second
	try(t, d, first)
	none("to join")
	try(t, d, second)
	none("to join others")
	d.Renew(t.Context(), []driver.RenewRequest{{Claim: holder.Claim, TTL: holder.TTL}}, func(_ int, r driver.Renewal) { must(t, r.Err) })
	none("to renew")
	place := driver.RenewRequest{Claim: first.Claim, TTL: first.TTL, Queue: true, Patience: 15 * time.Second} // it is time for a sign of life
	for _, one := range [][]driver.RenewRequest{{{Claim: holder.Claim, TTL: holder.TTL}, place}, {place, place}} {
		d.Renew(t.Context(), one, func(i int, r driver.Renewal) {
			if r.Err != nil || r.Wanted == one[i].Queue {
				t.Errorf("%d: %+v", i, r)
			}
		})
		none("to renew several")
		place.Patience += 7 * time.Second
	}
	reader, writer := claim("shared"), claim("shared")
	reader.Mode = driver.Shared
	try(t, near, reader)
	try(t, near, writer)
	locked.Store(0)
	d.Renew(t.Context(), []driver.RenewRequest{{Claim: reader.Claim, TTL: time.Hour}}, func(_ int, r driver.Renewal) {
		if r.Err != nil || !r.Wanted || r.TTL != time.Hour {
			t.Errorf("%+v", r)
		}
	})
	none("to renew what is shared")
	if info, err := near.Inspect(t.Context(), "shared"); err != nil || info.Left < 59*time.Minute {
		t.Errorf("%+v, %v", info, err)
	}
	release(t, d, holder)
	none("to release")
	if !try(t, d, first).Granted {
		t.Fatal("its turn has come, and it is refused")
	}
	none("to be granted")
	must(t, d.Release(t.Context(), driver.ReleaseRequest{Claim: second.Claim, TTL: second.TTL}))
	none("to leave")
	must(t, d.Release(t.Context(), driver.ReleaseRequest{Claim: first.Claim, TTL: first.TTL, End: driver.EndUnfinished}))
	none("to release with a mark")
}

// Rule: of a connection that was idle for a while it is seen without a round trip whether the server closed it.
func TestShouldPing(t *testing.T) {
	t.Parallel()
	c := newSchema(t, testserver.Postgres(t))
	conn, err := pgx.ConnectConfig(t.Context(), c)
	must(t, err)
	defer conn.Close(t.Context())
	should := func(idle time.Duration) bool {
		return pgxlisten.ShouldPing(t.Context(), stdlib.ShouldPingParams{Conn: conn, IdleDuration: idle})
	}
	if should(time.Millisecond) || should(2*time.Second) || !should(time.Minute) {
		t.Error("a connection that is there is asked for after a second, or is not after a minute")
	}
	_, err = pool(t, c).ExecContext(t.Context(), "SELECT pg_terminate_backend($1)", conn.PgConn().PID())
	must(t, err)
	for !should(2 * time.Second) {
		must(t, t.Context().Err())
	}
}

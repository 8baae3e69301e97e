// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pgxlisten_test

import (
	"context"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/sqldriver"
	"github.com/hasplock/hasp/sqldriver/pgxlisten"
)

// Rule: while the synchronous standby is away nothing is granted or renewed, and a wait for it that somebody
// cancels is a commit whose outcome is unknown: asked again when the standby is back, the same owner has the key.
func TestCancelledCommits(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.PostgresReplicates...)
	c := newSchema(t, server)
	pgxlisten.WatchCommits(c)
	standby := testserver.PostgresStandby(t, server)
	d, admin := open(t, c), pool(t, c)
	t.Cleanup(func() { must(t, d.Close()) })
	held, released := claim("held"), claim("released")
	try(t, d, held)
	try(t, d, released)
	standby.Kill()
	for _, s := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		_, err := admin.ExecContext(t.Context(), s)
		must(t, err)
	}
	// A server takes up a setting some time after it was told to.
	waits, stop := context.WithCancel(t.Context())
	go func() {
		for waits.Err() == nil {
			_, _ = admin.ExecContext(waits, "COMMENT ON SCHEMA public IS 'x'")
		}
	}()
	for n := 0; n == 0; {
		must(t, admin.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&n))
	}
	stop()
	free, shared := claim("free"), claim("shared")
	free.Queue, shared.Mode = false, driver.Shared
	for name, call := range map[string]func(ctx context.Context) error{
		"Try":        func(ctx context.Context) error { _, err := d.Try(ctx, free); return err },
		"shared Try": func(ctx context.Context) error { _, err := d.Try(ctx, shared); return err },
		"Renew": func(ctx context.Context) (err error) {
			d.Renew(ctx, []driver.RenewRequest{{Claim: held.Claim, TTL: held.TTL}}, func(_ int, r driver.Renewal) { err = r.Err })
			return err
		},
		"Release": func(ctx context.Context) error {
			return d.Release(ctx, driver.ReleaseRequest{Claim: released.Claim, TTL: released.TTL, Settled: true})
		},
	} {
		over := make(chan error, 1)
		go func() { over <- call(context.Background()) }()
		var err error
		for done := false; !done; {
			select {
			case err = <-over:
				done = true
			case <-time.After(5 * time.Millisecond):
				_, err := admin.ExecContext(t.Context(), "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
				must(t, err)
			}
		}
		if err == nil || driver.IsNotSent(err) || d.Classify(err) != driver.ClassUnreachable {
			t.Errorf("%s: its commit was not waited for, and it says: %v (class %d)", name, err, d.Classify(err))
		}
	}
	standby.Restart()
	for _, r := range []driver.TryRequest{free, shared, held} {
		if !try(t, d, r).Granted {
			t.Errorf("%s: asked again, it is refused", r.Key)
		}
	}
	if info, err := d.Inspect(t.Context(), released.Key); err != nil || info.Held {
		t.Errorf("%+v, %v", info, err)
	}
}

var _ sqldriver.Noticer = (*pgxlisten.Listener)(nil)

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: a server that is read-only for a while, as in a failover, ends no wait; what was released meanwhile is
// free soon after, and not only when it would have expired.
func TestReadOnlyForAWhile(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		start   func(testing.TB, ...string) *testserver.Server
		empty   func(testing.TB, *testserver.Server) database
		off, on []string
	}{
		"Postgres": {testserver.Postgres, newPostgres,
			[]string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"},
			[]string{"ALTER SYSTEM SET default_transaction_read_only = off", "SELECT pg_reload_conf()"}},
		"MySQL": {testserver.MariaDB, newMySQL, []string{"SET GLOBAL read_only = 1"}, []string{"SET GLOBAL read_only = 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := kind.empty(t, kind.start(t))
			admin := d.pool(t)
			d, _ = d.limited(t, admin)
			events := make(chan event.Event, 1000)
			client := func(observe func(context.Context, *event.Event)) *hasp.Client {
				c, err := hasp.New(d.open(t), &hasp.Options{Observe: observe})
				must(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			await := func(kind event.Kind, class driver.Class) {
				t.Helper()
				for limit := time.After(time.Minute); ; {
					select {
					case e := <-events:
						if err := (*hasp.Error)(nil); e.Kind == kind && (e.Err == nil || errors.As(e.Err, &err) && err.Class == class) {
							return
						}
					case <-limit:
						t.Fatalf("no event %v", kind)
					}
				}
			}
			const ttl = 10 * time.Minute // far more than the test takes
			holder, err := client(nil).Mutex("k", &hasp.LockOptions{TTL: ttl}).Lock(t.Context())
			must(t, err)
			got := make(chan error, 1)
			go func() {
				l, err := client(func(_ context.Context, e *event.Event) { events <- *e }).Mutex("k", nil).Lock(t.Context())
				if err == nil {
					err = l.Release()
				}
				got <- err
			}()
			await(event.Waiting, 0)
			for _, text := range kind.off {
				run(t, admin, text)
			}
			await(event.Trouble, driver.ClassReadOnly)
			if err := holder.Release(); err == nil {
				t.Error("a server that is read-only released a key")
			}
			for _, text := range kind.on {
				run(t, admin, text)
			}
			select {
			case err := <-got:
				must(t, err)
			case <-time.After(time.Minute):
				t.Error("the key is not free a minute after the server can be written again")
			}
		})
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/open"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

var must = expect.Need

// each engine by its URL, over a server of its own.
func each(t *testing.T, f func(t *testing.T, url string)) {
	for name, start := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return "sqlite:" + t.TempDir() + "/locks.db" },
		"redis":  func(t *testing.T) string { return "redis://" + testserver.Redis(t).Addr() },
		"node":   func(t *testing.T) string { return "redis://" + testserver.Redis(t).Addr() + "?max-ttl=1m" },
		"java":   func(t *testing.T) string { return "redis://" + testserver.Redis(t).Addr() + "?layout=redisson" },
		"redlock": func(t *testing.T) string {
			var addrs []string
			for range 3 {
				addrs = append(addrs, testserver.Redis(t).Addr())
			}
			return "redlock://" + strings.Join(addrs, ",")
		},
		"etcd": func(t *testing.T) string { return "etcd://" + testserver.Etcd(t).Addr() },
		"zk":   func(t *testing.T) string { return "zk://" + testserver.ZooKeeper(t).Addr() },
		"postgres": func(t *testing.T) string {
			return "postgres://postgres@" + testserver.Postgres(t).Addr() + "/postgres?sslmode=disable"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, start(t))
		})
	}
}

// A URL is all that a program needs, and Close leaves no connection behind.
func TestClient(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d, err := open.Driver(ctx, url)
		must(t, err)
		if tables, ok := d.(interface{ Init(context.Context) error }); ok {
			must(t, tables.Init(ctx))
		}
		must(t, d.Close())
		if _, err := d.Inspect(ctx, "k"); err == nil {
			t.Error("a connection is left after Close of the driver")
		}
		locks, err := open.Client(ctx, url, nil)
		must(t, err)
		if strings.Contains(url, "max-ttl") || strings.HasPrefix(url, "redlock") { // new servers, where nothing is locked
			must(t, locks.Operator().Admit(ctx))
		}
		lease, err := locks.Mutex("k", nil).Lock(ctx)
		must(t, err)
		must(t, lease.Release())
		must(t, locks.Close())
	})
}

// Nothing that an engine can do is lost behind the owner of its connections.
func TestDriverHasAllMethods(t *testing.T) {
	for url, has := range map[string]func(d driver.Driver) bool{
		"redis://localhost": func(d driver.Driver) bool {
			o := operator.Of(d)
			return o.ListLeftovers != nil && o.RemoveLeftover != nil
		},
		"redis://localhost?max-ttl=1m": func(d driver.Driver) bool { _, ok := d.(voting.Recorded); return ok },
		"redlock://a,b,c":              func(d driver.Driver) bool { return operator.Of(d).Admit != nil },
		"etcd://a":                     func(d driver.Driver) bool { return operator.Of(d).Examine != nil },
		"zk://a":                       func(d driver.Driver) bool { _, ok := d.(driver.Teller); return ok },
	} {
		d, err := open.Driver(t.Context(), url)
		must(t, err)
		if !has(d) {
			t.Errorf("%s: the driver %T lacks what its engine has", url, d)
		}
		must(t, d.Close())
	}
}

// A second Close does nothing, and says what the first said, whatever the engine.
func TestCloseTwice(t *testing.T) {
	for _, url := range []string{"sqlite:" + t.TempDir() + "/locks.db", "redis://h", "redis://h?max-ttl=1m", "redis://h?layout=redisson",
		"redis+sentinel://m@h", "redis+cluster://h", "redlock://a,b,c", "etcd://h", "zk://h", "postgres://h/db", "mysql://h/db"} {
		d, err := open.Driver(t.Context(), url)
		must(t, err)
		first := d.Close()
		if second := d.Close(); first != nil || second != nil {
			t.Errorf("%s: Close says %v, and then %v", url, first, second)
		}
	}
}

type counted struct{ lines atomic.Int32 }

func (c *counted) Printf(context.Context, string, ...any) { c.lines.Add(1) }

// A store that is opened leaves the logger of go-redis alone: the program may use go-redis for other things.
func TestLogsOfOthers(t *testing.T) {
	var logger counted
	redis.SetLogger(&logger)
	defer logging.Disable()
	for _, url := range []string{"redis://h", "redis+sentinel://m@h", "redis+cluster://h", "redlock://a,b,c"} {
		d, err := open.Driver(t.Context(), url)
		must(t, err)
		must(t, d.Close())
	}
	none := errors.New("no network")
	others := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"h"}, MaxRetries: -1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, none }})
	defer others.Close()
	if err := others.Ping(t.Context()).Err(); err == nil || logger.lines.Load() == 0 {
		t.Errorf("it logged %d lines of %v", logger.lines.Load(), err)
	}
}

func TestRefused(t *testing.T) {
	for url, want := range map[string]string{
		"consul://h":                      `"consul:", which hasp does not know: it knows etcd:, etcds:, mariadb:, mysql:, postgres:`,
		"redis://h:hunter2":               "the port in the store's URL",
		"redis://me:hunter2@h?x=1":        `"x": known here are`,
		"rediss://:hunter2@h?tls-ca=/no":  "hasp: open rediss://h:6379/0: TLS: ",
		"redlock://me:hunter2@a,b,c?db=x": "not a number",
	} {
		_, err := open.Client(t.Context(), url, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "hasp: open") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; want something about %q, and no secret", url, err, want)
		}
	}
	if _, err := open.Client(t.Context(), "redis://h", &hasp.Options{MaxSilence: -1}); err == nil || !strings.Contains(err.Error(), "MaxSilence") {
		t.Errorf("options that are wrong: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open.Driver(ended, "redis://h"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// The context of a lock bounds the dialling of a server that takes a connection and says nothing.
func TestContextBoundsDialling(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	for _, scheme := range []string{"redis", "rediss", "etcd", "zk", "postgres"} {
		locks, err := open.Client(t.Context(), scheme+"://"+l.Addr().String(), nil)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := locks.Mutex("k", nil).Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", scheme, err)
		}
		cancel()
		must(t, locks.Close())
	}
}

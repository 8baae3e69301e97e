// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

var must = expect.Need

// soon bounds what must happen, far above what it takes.
const soon = time.Minute

// unlock frees a key, and reports whether the caller still held it.
type unlock func(ctx context.Context) (bool, error)

// peer is a third-party lock client. obtain tries once to lock a Redis key; a
// nil unlock without an error is a refusal.
type peer struct {
	name   string
	obtain func(ctx context.Context, rdb *redis.Client, key string, ttl time.Duration) (unlock, error)
}

var peers = []peer{
	{"redsync", obtainRedsync},
	{"redislock", obtainRedislock},
	{"rueidislock", obtainRueidislock},
	{"SET NX PX", obtainBare},
}

func obtainRedsync(ctx context.Context, rdb *redis.Client, key string, ttl time.Duration) (unlock, error) {
	// By default it gives a request 5 % of the expiry, which a busy machine
	// needs for itself.
	m := redsync.New(goredis.NewPool(rdb)).NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(1))
	err := m.TryLockContext(ctx)
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (bool, error) {
		ok, err := m.UnlockContext(ctx)
		taken := (*redsync.ErrTaken)(nil)
		if errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken) {
			return false, nil
		}
		return ok, err
	}, nil
}

func obtainRedislock(ctx context.Context, rdb *redis.Client, key string, ttl time.Duration) (unlock, error) {
	l, err := redislock.Obtain(ctx, rdb, key, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (bool, error) {
		err := l.Release(ctx)
		if errors.Is(err, redislock.ErrLockNotHeld) {
			return false, nil
		}
		return err == nil, err
	}, nil
}

var deleteOwn = redis.NewScript(
	`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// obtainBare is what the documentation of SET advises.
func obtainBare(ctx context.Context, rdb *redis.Client, key string, ttl time.Duration) (unlock, error) {
	token := rand.Text()
	err := rdb.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (bool, error) {
		n, err := deleteOwn.Run(ctx, rdb, []string{key}, token).Int()
		return n == 1, err
	}, nil
}

// layout is how a hasp key maps to the peer's key.
type layout struct {
	name    string
	options redisdriver.Options
	prefix  string // the peer puts it before the key
}

var layouts = []layout{
	{"peer is given the prefix", redisdriver.Options{}, "lock:"},
	{"no prefix", redisdriver.Options{NoPrefix: true}, ""},
}

// bench is one Redis with a peer's client and ours.
type bench struct {
	testing.TB
	peer   peer
	layout layout
	server *testserver.Server
	rdb    *redis.Client // the peer's, and the test's own look at the server
}

// each runs a test for every peer in every layout, on one server.
func each(t *testing.T, f func(t *testing.T, b *bench)) {
	s := testserver.Redis(t)
	for _, l := range layouts {
		for _, p := range peers {
			t.Run(l.name+"/"+p.name, func(t *testing.T) {
				f(t, &bench{TB: t, peer: p, layout: l, server: s, rdb: dial(t, s)})
			})
		}
	}
}

func dial(t testing.TB, s *testserver.Server) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	})
	return rdb
}

// key returns a key of this test, as we and as the peer call it.
func (b *bench) key(name string) (ours, theirs string) {
	name = "interop" + rueidislockPart + b.Name() + "/" + name
	return name, b.layout.prefix + name
}

// locks returns a client of ours with connections of its own. seen gets every
// refusal that a waiter meets.
func (b *bench) locks(seen chan<- event.Event) *hasp.Client {
	return newLocks(b, b.server, b.layout, seen)
}

func newLocks(t testing.TB, s *testserver.Server, l layout, seen chan<- event.Event) *hasp.Client {
	t.Helper()
	o := l.options
	c, err := hasp.New(redisdriver.New(dial(t, s), &o), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
		if e.Kind == event.Waiting && seen != nil {
			select {
			case seen <- *e:
			default: // nobody reads that many
			}
		}
	}})
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// obtain fails the test unless the peer gets the key.
func (b *bench) obtain(key string, ttl time.Duration) unlock {
	b.Helper()
	u, err := b.peer.obtain(b.Context(), b.rdb, key, ttl)
	if err != nil || u == nil {
		b.Fatalf("%s does not get the free key %q: %v", b.peer.name, key, err)
	}
	return u
}

// frees fails the test unless the unlock freed the key, or did not, as wanted.
func (b *bench) frees(u unlock, want bool) {
	b.Helper()
	if got, err := u(b.Context()); err != nil || got != want {
		b.Fatalf("the unlock of %s freed the key: %v, want %v (%v)", b.peer.name, got, want, err)
	}
}

// value returns what the key of Redis holds, empty when it does not exist.
func (b *bench) value(key string) string {
	b.Helper()
	v, err := b.rdb.Get(b.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		b.Fatal(err)
	}
	return v
}

// waited is a Lock that runs in the background.
type waited struct {
	lease *hasp.Lease
	err   error
}

func lockAsync(ctx context.Context, m *hasp.Mutex) <-chan waited {
	got := make(chan waited, 1)
	go func() {
		lease, err := m.Lock(ctx)
		got <- waited{lease, err}
	}()
	return got
}

// await returns what comes, or fails the test.
func await[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(soon):
		t.Fatalf("no %s within %v", what, soon)
		panic("unreachable")
	}
}

// lease returns the lease that a wait brought, or fails the test.
func lease(t testing.TB, got <-chan waited) *hasp.Lease {
	t.Helper()
	w := await(t, "lease", got)
	if w.err != nil {
		t.Fatal(w.err)
	}
	return w.lease
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

var must = expect.Need

func TestMain(m *testing.M) {
	holderMain()
	lateMain()
	logging.Disable() // it would log every refused connection
	testserver.SideBySide(8)
	goleak.VerifyTestMain(m)
}

// soon bounds what must happen, far above what it takes.
const soon = 2 * time.Minute

// little is what a busy machine may add to a promised bound, in addition to the stalls that stall.Watch measures.
const little = time.Second

// settings are two configurations of go-redis: its defaults, and a client that obeys contexts and sends nothing twice.
var settings = []struct {
	name string
	set  func(*redis.Options)
}{
	{"default settings", func(*redis.Options) {}},
	{"no retries, contexts obeyed", func(o *redis.Options) { o.MaxRetries, o.ContextTimeoutEnabled = -1, true }},
}

// eachSetting runs a test with every setting of go-redis, beside other tests.
func eachSetting(t *testing.T, f func(t *testing.T, dial func(addr string) *redis.Options)) {
	t.Parallel()
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f(t, func(addr string) *redis.Options {
				o := &redis.Options{Addr: addr}
				s.set(o)
				return o
			})
		})
	}
}

// Locks returns a client of the Redis at addr, with connections of its own and
// the default settings of go-redis. Both end with the test.
func Locks(t testing.TB, addr string, observe func(context.Context, *event.Event)) *hasp.Client {
	t.Helper()
	return LocksOn(t, &redis.Options{Addr: addr}, observe)
}

// LocksOn is Locks with other settings.
func LocksOn(t testing.TB, o *redis.Options, observe func(context.Context, *event.Event)) *hasp.Client {
	t.Helper()
	return locksOf(t, o, &hasp.Options{Observe: observe})
}

// locksOf is LocksOn with options of the client's own.
func locksOf(t testing.TB, o *redis.Options, of *hasp.Options) *hasp.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Errorf("close the connections: %v", err)
		}
	})
	c, err := hasp.New(redisdriver.New(rdb, nil), of)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, hasp.ErrLost) {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

// admin returns a connection for inspecting the server and for injecting faults.
func admin(t testing.TB, s *testserver.Server) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	})
	return rdb
}

func run(t testing.TB, rdb *redis.Client, args ...any) {
	t.Helper()
	if err := rdb.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// nothingLeft fails the test if the store still has holders or waiters, or any key that does not expire.
func nothingLeft(t testing.TB, rdb *redis.Client) {
	t.Helper()
	for _, key := range allExpire(t, rdb) {
		held := strings.HasPrefix(key, "lock:") || strings.HasPrefix(key, "hasp.queue:")
		if strings.HasPrefix(key, "hasp.places:") {
			fields := rdb.HKeys(t.Context(), key).Val()
			held = slices.ContainsFunc(fields, func(f string) bool { return f != "!" }) // no place: the owners that did not answer
		}
		if held {
			t.Errorf("key %q is left, for %v", key, rdb.PTTL(t.Context(), key).Val())
		}
	}
}

// allExpire returns all keys, and fails the test for each that does not expire.
func allExpire(t testing.TB, rdb *redis.Client) (keys []string) {
	t.Helper()
	scan := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for scan.Next(t.Context()) {
		keys = append(keys, scan.Val())
		if left, err := rdb.PTTL(t.Context(), scan.Val()).Result(); err != nil || left == -1 {
			t.Errorf("key %q has no expiry (%v)", scan.Val(), err)
		}
	}
	if err := scan.Err(); err != nil {
		t.Error(err)
	}
	return keys
}

// feed keeps the events of a client in order.
type feed struct{ ch chan event.Event }

func newFeed() *feed { return &feed{make(chan event.Event, 1<<16)} }

func (f *feed) observe(_ context.Context, e *event.Event) { f.ch <- *e }

// next returns the next event of a kind, skipping others.
func (f *feed) next(t testing.TB, kind event.Kind) event.Event {
	t.Helper()
	limit := time.After(soon)
	for {
		select {
		case e := <-f.ch:
			if e.Kind == kind {
				return e
			}
		case <-limit:
			t.Fatalf("no event %q within %v", kind, soon)
		}
	}
}

// waits returns once a Lock of this client waits in the queue.
func (f *feed) waits(t testing.TB) {
	t.Helper()
	f.next(t, event.Waiting)
}

// outcome is the result of a Lock in the background, and its time.
type outcome struct {
	lease *hasp.Lease
	err   error
	at    time.Time
}

func lockAsync(ctx context.Context, m *hasp.Mutex) <-chan outcome {
	got := make(chan outcome, 1)
	go func() {
		lease, err := m.Lock(ctx)
		got <- outcome{lease, err, time.Now()}
	}()
	return got
}

func await(t testing.TB, got <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-got:
		return o
	case <-time.After(soon):
		t.Fatalf("Lock did not return within %v", soon)
		panic("unreachable")
	}
}

func awaitLease(t testing.TB, got <-chan outcome) (*hasp.Lease, time.Time) {
	t.Helper()
	o := await(t, got)
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.lease, o.at
}

func mustLock(t testing.TB, m *hasp.Mutex) *hasp.Lease {
	t.Helper()
	lease, _ := awaitLease(t, lockAsync(t.Context(), m))
	return lease
}

func release(t testing.TB, l *hasp.Lease) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

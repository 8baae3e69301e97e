// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/memdriver"
)

var need, check = expect.Need, expect.Check

const ttl = 30 * time.Second

// hooked is a driver whose calls pass through functions that may fail, wait, or call the driver more than once.
type hooked struct {
	driver.Driver
	try      func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error)
	renew    func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc)
	release  func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error
	watch    func(ctx context.Context, r driver.Claim, next watchFunc) (<-chan driver.Hint, error)
	classify func(error) driver.Class
	enters   bool // hints tell of handovers

	mu sync.Mutex // guards the functions above once calls are under way

	tries, renews, releases atomic.Int64
}

type (
	tryFunc     func(context.Context, driver.TryRequest) (driver.Result, error)
	renewFunc   func(context.Context, []driver.RenewRequest, func(int, driver.Renewal))
	releaseFunc func(context.Context, driver.ReleaseRequest) error
	watchFunc   func(context.Context, driver.Claim) (<-chan driver.Hint, error)
)

// change replaces functions while calls may be under way.
func (d *hooked) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func get[F any](d *hooked, f *F) F {
	d.mu.Lock()
	defer d.mu.Unlock()
	return *f
}

func (d *hooked) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	d.tries.Add(1)
	if try := get(d, &d.try); try != nil {
		return try(ctx, r, d.Driver.Try)
	}
	return d.Driver.Try(ctx, r)
}

func (d *hooked) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	d.renews.Add(1)
	if renew := get(d, &d.renew); renew != nil {
		renew(ctx, rs, done, d.Driver.Renew)
		return
	}
	d.Driver.Renew(ctx, rs, done)
}

func (d *hooked) Release(ctx context.Context, r driver.ReleaseRequest) error {
	d.releases.Add(1)
	if release := get(d, &d.release); release != nil {
		return release(ctx, r, d.Driver.Release)
	}
	return d.Driver.Release(ctx, r)
}

func (d *hooked) Watch(ctx context.Context, r driver.Claim) (<-chan driver.Hint, error) {
	next := d.Driver.Watch
	if !d.enters {
		next = func(ctx context.Context, r driver.Claim) (<-chan driver.Hint, error) {
			hints, err := d.Driver.Watch(ctx, r)
			return fault.Relay(ctx, hints, func(driver.Hint) (driver.Hint, bool) { return driver.Hint{}, true }), err
		}
	}
	if watch := get(d, &d.watch); watch != nil {
		return watch(ctx, r, next)
	}
	return next(ctx, r)
}

func (d *hooked) Classify(err error) driver.Class {
	if d.classify != nil {
		return d.classify(err)
	}
	return d.Driver.Classify(err)
}

func (d *hooked) onTry(f func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error)) {
	d.change(func() { d.try = f })
}

func (d *hooked) onRenew(f func(context.Context, []driver.RenewRequest, func(int, driver.Renewal), renewFunc)) {
	d.change(func() { d.renew = f })
}

func (d *hooked) onRelease(f func(context.Context, driver.ReleaseRequest, releaseFunc) error) {
	d.change(func() { d.release = f })
}

func (d *hooked) onWatch(f func(context.Context, driver.Claim, watchFunc) (<-chan driver.Hint, error)) {
	d.change(func() { d.watch = f })
}

var errDown = errors.New("connection refused")

func hangTry(ctx context.Context, _ driver.TryRequest, _ tryFunc) (driver.Result, error) {
	<-ctx.Done()
	return driver.Result{}, ctx.Err()
}

func hangRenew(ctx context.Context, _ []driver.RenewRequest, _ func(int, driver.Renewal), _ renewFunc) {
	<-ctx.Done()
}

// failRenew answers every renewal with an error.
func failRenew(err error) func(context.Context, []driver.RenewRequest, func(int, driver.Renewal), renewFunc) {
	return func(_ context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
		for i := range rs {
			done(i, driver.Renewal{Err: err})
		}
	}
}

// hookedMem returns a store in memory, and the hooks in front of it.
func hookedMem() (*memdriver.Store, *hooked) {
	store := newStore()
	return store, &hooked{Driver: store}
}

// newHooked returns a hooked store in memory, and a client of it.
func newHooked(t *testing.T) (*hooked, *hasp.Client) {
	t.Helper()
	d := &hooked{Driver: newStore()}
	return d, newClient(t, d, nil)
}

// newMem returns a store in memory, and a client of it.
func newMem(t *testing.T) (*memdriver.Store, *hasp.Client) {
	t.Helper()
	store := newStore()
	return store, newClient(t, store, nil)
}

// bubbled runs a case in a bubble of its own.
func bubbled(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// newClient returns a client that is closed with the test.
func newClient(t *testing.T, d driver.Driver, o *hasp.Options) *hasp.Client {
	t.Helper()
	c, err := hasp.New(d, o)
	need(t, err)
	hasp.SetClock(c, bubble)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// bubble is the clock without what no bubble stops: a machine that stalls for seconds while a test runs ends no lease.
func bubble() clock.Instant {
	now := clock.System()
	now.Boot = 0
	return now
}

// shifted gives a client a wall clock that is so many nanoseconds ahead.
func shifted(c *hasp.Client) *atomic.Int64 {
	by := new(atomic.Int64)
	hasp.SetClock(c, func() clock.Instant {
		now := bubble()
		now.Wall += time.Duration(by.Load())
		return now
	})
	return by
}

func lock(t *testing.T, c *hasp.Client, key string, o *hasp.LockOptions) *hasp.Lease {
	t.Helper()
	lease, err := c.Mutex(key, o).Lock(t.Context())
	need(t, err)
	return lease
}

// mustBeFree fails unless the store knows nothing of keys.
func mustBeFree(t *testing.T, d driver.Driver, keys ...string) {
	t.Helper()
	for _, key := range keys {
		info, err := d.Inspect(context.Background(), key)
		need(t, err)
		if info.Held || info.Waiters > 0 {
			t.Fatalf("left behind: %q held by %q, %d waiters", key, info.Holder.Owner, info.Waiters)
		}
	}
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		stopIf(t, !errors.Is(err, target), "the error is %v, want errors.Is %v", err, target)
	}
}

// isMistake says that an error is the caller's, of a class that says so, and does not blame the store.
func isMistake(err error) bool {
	var e *hasp.Error
	return errors.As(err, &e) && e.Class == driver.ClassImpossible && !strings.Contains(err.Error(), "memory: ")
}

// failIf fails a test, which goes on, when what it saw is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends a test when what it saw is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}

func newStore() *memdriver.Store { return memdriver.New() }

// must returns v: a test whose beginning fails has nothing more to say.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// outcome is what a call that ran by itself returned.
type outcome[T any] struct {
	v   T
	err error
}

// begin runs a call by itself.
func begin[T any](ctx context.Context, call func(context.Context) (T, error)) chan outcome[T] {
	done := make(chan outcome[T], 1)
	go func() {
		v, err := call(ctx)
		done <- outcome[T]{v, err}
	}()
	return done
}

// granted returns what a call that ran by itself got, or fails when it still waits. It is for synctest bubbles, after synctest.Wait.
func granted[T any](t *testing.T, who string, c chan outcome[T]) (v T) {
	t.Helper()
	select {
	case o := <-c:
		stopIf(t, o.err != nil, "%s: %v", who, o.err)
		return o.v
	default:
		t.Fatalf("%s still waits", who)
	}
	return v
}

// waits fails when a call that ran by itself has ended.
func waits[T any](t *testing.T, who string, c chan outcome[T]) {
	t.Helper()
	select {
	case o := <-c:
		t.Fatalf("%s does not wait: %v", who, o.err)
	default:
	}
}

// without is a driver that lacks something.
type without struct {
	driver.Driver
	traits driver.Traits
}

func (d *without) Traits() driver.Traits { return d.traits }

// mortal is a process's way to the store, until it is killed: then nothing that the process still does reaches the store.
type mortal struct {
	driver.Driver
	dead atomic.Bool
}

func (d *mortal) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	if d.dead.Load() {
		return driver.Result{}, errDown
	}
	return d.Driver.Try(ctx, r)
}

func (d *mortal) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	if !d.dead.Load() {
		d.Driver.Renew(ctx, rs, done)
	}
}

func (d *mortal) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if d.dead.Load() {
		return errDown
	}
	return d.Driver.Release(ctx, r)
}

// reentrant is the option alone.
var reentrant = &hasp.LockOptions{Reentrant: true}

// mutexes are the Mutexes of the keys, with default options.
func mutexes(c *hasp.Client, keys ...string) hasp.Locks {
	items := make(hasp.Locks, len(keys))
	for i, key := range keys {
		items[i] = c.Mutex(key, nil)
	}
	return items
}

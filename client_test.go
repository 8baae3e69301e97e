// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// Promise 6: no goroutine stays after the last lease is gone. The bubble fails
// when one stays that waits for something; the renewer waits for its timer.
func TestIdleClientHasNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		for i := range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			lease := lock(t, c, "k"+strconv.Itoa(i%10), nil)
			lease.Context(ctx)
			if i%2 == 0 {
				cancel()
			}
			need(t, lease.Release())
			cancel()
		}
		time.Sleep(time.Second)
		failIf(t, hasp.RenewerRuns(c), "the renewer runs, and there is nothing to keep")
	})
}

func TestListAndInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		for _, k := range []string{"a/1", "a/2", "b/1"} {
			lock(t, c, k, nil)
		}
		var keys []string
		for info, err := range c.Operator().List(t.Context(), "a/") {
			need(t, err)
			keys = append(keys, info.Key)
		}
		failIf(t, len(keys) != 2, "listed %q", keys)
		if info, err := c.Operator().Inspect(t.Context(), "free"); err != nil || info.Held {
			t.Errorf("a free key: %+v, %v", info, err)
		}
	})
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	_, err := hasp.New(nil, nil)
	failIf(t, !isMistake(err) || err.Error() != "hasp: new: the driver is nil", "a nil driver: %v", err)
	for _, o := range []hasp.Options{{MaxSilence: -1}, {MaxFaulty: -1}} {
		_, err = hasp.New(newStore(), &o)
		failIf(t, !isMistake(err) || !strings.HasPrefix(err.Error(), "hasp: new: Max"), "negative: %v", err)
	}
	_, err = hasp.New(unfit{newStore()}, nil)
	failIf(t, !errors.Is(err, errDown), "the driver's own check was not asked: %v", err)
}

type unfit struct{ driver.Driver }

func (unfit) Check() error { return errDown }

// listing is a driver that lists what the test sets.
type listing struct {
	driver.Driver
	errs []error
}

func (d *listing) List(context.Context, string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for _, err := range d.errs {
			if !yield(driver.Info{Key: "k"}, err) {
				return
			}
		}
	}
}

// List ends when its reader does, and after the first error.
func TestListEnds(t *testing.T) {
	c := newClient(t, &listing{newStore(), []error{nil, nil, errDown, nil}}, nil)
	n := 0
	for _, err := range c.Operator().List(t.Context(), "") {
		if n++; (err != nil) != (n == 3) {
			t.Errorf("key %d: %v", n, err)
		}
	}
	failIf(t, n != 3, "%d keys", n)
	for _, err := range c.Operator().List(t.Context(), "") {
		check(t, err)
		break
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		var ctxs []context.Context
		for i := range 100 {
			ctxs = append(ctxs, lock(t, c, strconv.Itoa(i), nil).Context(t.Context()))
		}
		lease := lock(t, c, "k", nil)
		waited := make(chan error)
		go func() {
			_, err := c.Mutex("k", nil).Lock(t.Context())
			waited <- err
		}()
		synctest.Wait()
		go func() { wantIs(t, <-waited, hasp.ErrClosed, hasp.ErrHeld) }()
		need(t, c.Close())
		for i, ctx := range ctxs {
			wantIs(t, context.Cause(ctx), hasp.ErrClosed)
			mustBeFree(t, store, strconv.Itoa(i))
		}
		wantIs(t, lease.Err(), hasp.ErrClosed)
		wantIs(t, lease.Release(), hasp.ErrClosed)
		_, err := c.Mutex("k", nil).Lock(t.Context())
		wantIs(t, err, hasp.ErrClosed)
		_, err = c.Operator().Inspect(t.Context(), "k")
		wantIs(t, err, hasp.ErrClosed)
		need(t, c.Close())
		mustBeFree(t, store, "k")
	})
}

// Close ends a Try that is under way, and says what it could not release.
func TestCloseWithAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		lock(t, c, "held", nil)
		d.try = hangTry // nothing is under way
		d.release = func(ctx context.Context, _ driver.ReleaseRequest, _ releaseFunc) error {
			<-ctx.Done()
			return ctx.Err()
		}
		waited := begin(t.Context(), c.Mutex("k", nil).Lock)
		synctest.Wait()
		start := time.Now()
		err := c.Close()
		failIf(t, time.Since(start) > 11*time.Second, "Close took %v", time.Since(start))
		if err == nil || !strings.Contains(err.Error(), `"held"`) {
			t.Errorf("Close does not name what it could not release: %v", err)
		}
		wantIs(t, (<-waited).err, hasp.ErrClosed)
	})
}

// Close with more holds than workers on a hung store.
func TestCloseManyHoldsOnAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.release = func(ctx context.Context, _ driver.ReleaseRequest, _ releaseFunc) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c, _ := hasp.New(d, nil)
		start := time.Now()
		var worst time.Duration
		var mu sync.Mutex
		for i := range 300 {
			l := lock(t, c, fmt.Sprint(i), &hasp.LockOptions{TTL: 10 * time.Second})
			ctx := l.Context(context.Background())
			context.AfterFunc(ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				worst = max(worst, time.Since(start))
			})
		}
		_ = c.Close()
		synctest.Wait()
		t.Logf("Close took %v; the last context ended after %v (deadline was at 9.898s)", time.Since(start), worst)
		failIf(t, time.Since(start) > 5*time.Second, "Close took longer than 5 s")
		failIf(t, worst > 9898*time.Millisecond, "a lease was believed held after its deadline")
	})
}

// Close frees the key while Do's function runs.
func TestCloseDuringDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		var running atomic.Bool
		go func() {
			_ = c.Mutex("k", nil).Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
				running.Store(true)
				<-ctx.Done()
				time.Sleep(time.Second) // winds up
				running.Store(false)
				return nil
			})
		}()
		synctest.Wait()
		go c.Close()
		lock(t, newClient(t, store, nil), "k", nil)
		failIf(t, running.Load(), "another has the key while f runs")
		time.Sleep(time.Minute)
	})
}

// Close leaves a key to the function of Do that holds it, which may have released its own lease by then: its return frees the key all the
// same. What the store did not confirm is in Close's error.
func TestCloseLeavesTheKeyToDo(t *testing.T) {
	for _, away := range []bool{false, true} {
		for _, early := range []bool{false, true} { // it released its own lease, and has one within that
			bubbled(t, fmt.Sprintf("the store is away: %v, released: %v", away, early), func(t *testing.T) {
				d, c := newHooked(t)
				m := c.Mutex("k", reentrant)
				out, did := make(chan struct{}), make(chan error, 1)
				go func() {
					did <- m.Do(t.Context(), func(ctx context.Context, lease *hasp.Lease) error {
						if early {
							must(m.Lock(ctx))
							release(t, lease)
						}
						<-out
						return nil
					})
				}()
				synctest.Wait()
				closed := begin(t.Context(), func(context.Context) (any, error) { return nil, c.Close() })
				synctest.Wait()
				if away {
					d.onRelease(func(context.Context, driver.ReleaseRequest, releaseFunc) error { return errDown })
				}
				close(out)
				wantIs(t, <-did, hasp.ErrClosed)
				switch err := (<-closed).err; {
				case !away && err != nil:
					t.Error(err)
				case !away:
					mustBeFree(t, d.Driver, "k")
				case err == nil || !strings.Contains(err.Error(), `"k"`):
					t.Errorf("Close does not name what could not be released: %v", err)
				}
				failIf(t, !away && d.releases.Load() != 1, "the store was told %d times", d.releases.Load())
			})
		}
	}
}

// Close with a hung Inspect.
func TestCloseDuringInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hungInspect{Driver: newStore()}
		c, _ := hasp.New(h, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = c.Operator().Inspect(ctx, "k") }()
		synctest.Wait()
		start := time.Now()
		_ = c.Close()
		failIf(t, h.in.Load() > 0, "driver.Close was called after %v with an Inspect under way", time.Since(start))
	})
}

type hungInspect struct {
	driver.Driver
	in atomic.Int64
}

func (d *hungInspect) Inspect(ctx context.Context, _ string) (driver.Info, error) {
	d.in.Add(1)
	defer d.in.Add(-1)
	<-ctx.Done()
	return driver.Info{}, ctx.Err()
}

// Close names the key of a function of Do that does not return, and no other. It waits for it for 5 s in all.
func TestCloseNamesWhatStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		ends := make(chan struct{})
		go func() {
			_ = c.Mutex("stuck", nil).Do(t.Context(), func(context.Context, *hasp.Lease) error {
				<-ends
				return nil
			})
		}()
		lock(t, c, "other", nil)
		synctest.Wait()
		start := time.Now()
		err := c.Close()
		failIf(t, time.Since(start) > 5*time.Second, "Close took %v", time.Since(start))
		if err == nil || !strings.Contains(err.Error(), `"stuck": the function that holds it has not returned`) || strings.Contains(err.Error(), "other") {
			t.Errorf("Close: %v", err)
		}
		close(ends)
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// Promise 5, failure case 12: Release needs no live context.
func TestReleaseAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := newClient(t, store, nil).Mutex("k", nil).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		mustBeFree(t, store, "k")
	})
}

// Promise 5: Release has a limit of its own, and says what is left.
func TestReleaseOfAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		lease := lock(t, newClient(t, d, nil), "k", nil)
		d.release = func(ctx context.Context, _ driver.ReleaseRequest, _ releaseFunc) error {
			<-ctx.Done()
			return ctx.Err()
		}
		start := time.Now()
		err := lease.Release()
		if took := time.Since(start); err == nil || took > 6*time.Second {
			t.Fatalf("%v after %v", err, took)
		}
		if !strings.Contains(err.Error(), "30s") {
			t.Errorf("the error does not say for how long the key stays: %v", err)
		}
	})
}

// Failure case 9: Do releases after the function returned, and joins its error.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		ctx, cancel := context.WithCancel(t.Context())
		mine := errors.New("mine")
		err := c.Mutex("k", nil).Do(ctx, func(ctx context.Context, lease *hasp.Lease) error {
			cancel()
			<-ctx.Done()
			if info, _ := store.Inspect(context.Background(), "k"); !info.Held || info.Fence != lease.Fence() {
				t.Error("released while the function runs")
			}
			return mine
		})
		if wantIs(t, err, mine); errors.Is(err, hasp.ErrLost) {
			t.Error(err)
		}
		mustBeFree(t, store, "k")

		err = c.Mutex("k", nil).Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
			store.Lose("k")
			<-ctx.Done()
			return nil
		})
		wantIs(t, err, hasp.ErrLost)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
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
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for i, ctx := range ctxs {
			wantIs(t, context.Cause(ctx), hasp.ErrClosed)
			mustBeFree(t, store, strconv.Itoa(i))
		}
		wantIs(t, lease.Err(), hasp.ErrClosed)
		wantIs(t, lease.Release(), hasp.ErrClosed)
		_, err := c.Mutex("k", nil).Lock(t.Context())
		wantIs(t, err, hasp.ErrClosed)
		_, err = c.Inspect(t.Context(), "k")
		wantIs(t, err, hasp.ErrClosed)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		mustBeFree(t, store, "k")
	})
}

// Close ends a Try that is under way, and says what it could not release.
func TestCloseWithAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		lock(t, c, "held", nil)
		d.try = hangTry // nothing is under way
		d.release = func(ctx context.Context, _ driver.ReleaseRequest, _ releaseFunc) error {
			<-ctx.Done()
			return ctx.Err()
		}
		waited := make(chan error, 1)
		go func() {
			_, err := c.Mutex("k", nil).Lock(t.Context())
			waited <- err
		}()
		synctest.Wait()
		start := time.Now()
		err := c.Close()
		if took := time.Since(start); took > 11*time.Second {
			t.Errorf("Close took %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), `"held"`) {
			t.Errorf("Close does not name what it could not release: %v", err)
		}
		wantIs(t, <-waited, hasp.ErrClosed)
	})
}

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
			if err := lease.Release(); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		time.Sleep(time.Second)
		if hasp.RenewerRuns(c) {
			t.Error("the renewer runs, and there is nothing to keep")
		}
	})
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		first := lock(t, c, "k", nil)
		second := make(chan *hasp.Lease)
		go func() {
			l, err := c.Mutex("k", nil).Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			second <- l
		}()
		synctest.Wait()
		op := newClient(t, store, nil)
		wantIs(t, op.Break(t.Context(), "k", ""), hasp.ErrNotHeld)
		if err := op.Break(t.Context(), "k", first.Owner()); err != nil {
			t.Fatal(err)
		}
		next := <-second
		wantIs(t, op.Break(t.Context(), "k", first.Owner()), hasp.ErrNotHeld)
		if err := next.Err(); err != nil {
			t.Fatalf("the successor was broken: %v", err)
		}
		<-first.Done()
		wantIs(t, first.Err(), hasp.ErrLost)
		wantIs(t, first.Release(), hasp.ErrLost)
		if next.Err() != nil || next.Fence() <= first.Fence() {
			t.Fatal("the release of a broken lease hurt the successor")
		}
	})
}

func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		gone := driver.Claim{Key: "k", Owner: strings.Repeat("A", driver.OwnerLen), Label: `{"host":"h"}`}
		res, err := store.Try(t.Context(), driver.TryRequest{Claim: gone, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(t, store, nil)
		_, err = c.Adopt(t.Context(), "k", strings.Repeat("B", driver.OwnerLen), nil)
		wantIs(t, err, hasp.ErrNotHeld)
		_, err = c.Adopt(t.Context(), "free", gone.Owner, nil)
		wantIs(t, err, hasp.ErrNotHeld)
		lease, err := c.Adopt(t.Context(), "k", gone.Owner, nil)
		if err != nil {
			t.Fatal(err)
		}
		if lease.Fence() != res.Fence || lease.Owner() != gone.Owner {
			t.Fatalf("adopted fence %d of %d", lease.Fence(), res.Fence)
		}
		time.Sleep(5 * ttl)
		if err := lease.Err(); err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		mustBeFree(t, store, "k")
	})
}

func TestListAndInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		for _, k := range []string{"a/1", "a/2", "b/1"} {
			lock(t, c, k, nil)
		}
		var keys []string
		for info, err := range c.List(t.Context(), "a/") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, info.Key)
		}
		if len(keys) != 2 {
			t.Errorf("listed %q", keys)
		}
		if info, err := c.Inspect(t.Context(), "free"); err != nil || info.Held {
			t.Errorf("a free key: %+v, %v", info, err)
		}
	})
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	if _, err := hasp.New(nil, nil); err == nil {
		t.Error("took a nil driver")
	}
	if _, err := hasp.New(unfit{newStore()}, nil); !errors.Is(err, errDown) {
		t.Errorf("the driver's own check was not asked: %v", err)
	}
}

type unfit struct{ driver.Driver }

func (unfit) Check() error { return errDown }

// A label says when its acquisition began, whatever else it says.
func TestLabelSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		for _, reason := range []string{"", "deploy", "2006-01-02T15:04:05.001Z", "\x00\"}"} {
			time.Sleep(time.Minute)
			lease := lock(t, c, "k", &hasp.LockOptions{Reason: reason})
			info, err := c.Inspect(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			l, ok := driver.ParseLabel(info.Holder.Label)
			if !ok || l.Reason != reason || !l.Since.Equal(time.Now().Truncate(time.Millisecond)) {
				t.Errorf("%q: the label is %s", reason, info.Holder.Label)
			}
			release(t, lease)
		}
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"iter"
	"strconv"
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
		for info, err := range c.List(t.Context(), "a/") {
			need(t, err)
			keys = append(keys, info.Key)
		}
		failIf(t, len(keys) != 2, "listed %q", keys)
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
	for _, err := range c.List(t.Context(), "") {
		if n++; (err != nil) != (n == 3) {
			t.Errorf("key %d: %v", n, err)
		}
	}
	failIf(t, n != 3, "%d keys", n)
	for _, err := range c.List(t.Context(), "") {
		check(t, err)
		break
	}
}

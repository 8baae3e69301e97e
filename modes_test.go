// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

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

// granted returns what a call that ran by itself got, or fails when it still
// waits. It is for synctest bubbles, after synctest.Wait.
func granted[T any](t *testing.T, who string, c chan outcome[T]) (v T) {
	t.Helper()
	select {
	case o := <-c:
		if o.err != nil {
			t.Fatalf("%s: %v", who, o.err)
		}
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

// mortal is a process's way to the store, until it is killed: then nothing that
// the process still does reaches the store.
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

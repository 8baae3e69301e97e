// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pipe_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/pipe"
)

// agent serves clients over pipes in memory.
type agent struct {
	t     *testing.T
	store *memdriver.Store
	locks *hasp.Client
	ctx   context.Context
	stop  context.CancelFunc

	served chan error // of the latest connection
}

func newAgent(t *testing.T) *agent {
	store := memdriver.New()
	a := agentOf(t, store)
	a.store = store
	return a
}

func agentOf(t *testing.T, d driver.Driver) *agent {
	a := &agent{t: t}
	a.ctx, a.stop = context.WithCancel(t.Context())
	a.locks = another(t, d)
	return a
}

// another is a client of a store beside the agent's.
func another(t *testing.T, d driver.Driver) *hasp.Client {
	c, err := hasp.New(d, nil)
	c = must(t, c, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (a *agent) connect(o *pipe.Options) net.Conn {
	ours, theirs := net.Pipe()
	if o == nil {
		o = &pipe.Options{}
	}
	a.served = make(chan error, 1)
	go func(served chan error) { served <- pipe.Serve(a.ctx, a.locks, theirs, o) }(a.served)
	a.t.Cleanup(func() { ours.Close() })
	return ours
}

func (a *agent) client() *pipe.Client {
	a.t.Helper()
	c, err := pipe.NewClient(a.t.Context(), a.connect(nil), "test", 0)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(c.Kill)
	return c
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func wantKind(t *testing.T, err error, want pipe.Kind) pipe.ErrorData {
	t.Helper()
	var e *pipe.Error
	if !errors.As(err, &e) || e.Kind != want {
		t.Fatalf("the error is %v, want kind %s", err, want)
	}
	return e.ErrorData
}

var once = new(pipe.Millis)

func TestLockAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		one, two := a.client(), a.client()
		held, err := one.Lock(t.Context(), pipe.LockParams{Key: "k", Reason: "a test"})
		held = must(t, held, err)
		_, err = two.Lock(t.Context(), pipe.LockParams{Key: "k", Wait: once})
		if e := wantKind(t, err, pipe.Busy); e.Holder == nil || e.Holder.Reason != "a test" || e.Key != "k" {
			t.Errorf("the error names %+v", e.Holder)
		}
		got := make(chan *pipe.Lease)
		go func() {
			l, err := two.Lock(t.Context(), pipe.LockParams{Key: "k"})
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		synctest.Wait()
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		next := <-got
		first, _ := strconv.ParseUint(held.Fence, 10, 64)
		if second, _ := strconv.ParseUint(next.Fence, 10, 64); second <= first || next.Abandoned {
			t.Errorf("the fences are %s and %s; abandoned: %v", held.Fence, next.Fence, next.Abandoned)
		}
		time.Sleep(time.Hour)
		if next.Err() != nil || time.Until(next.Deadline()) <= 0 {
			t.Errorf("an hour later: %v", next.Err())
		}
	})
}

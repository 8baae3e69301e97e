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
}

func newAgent(t *testing.T) *agent {
	a := &agent{t: t, store: memdriver.New()}
	a.ctx, a.stop = context.WithCancel(t.Context())
	var err error
	if a.locks, err = hasp.New(a.store, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.locks.Close() })
	return a
}

func (a *agent) connect(o *pipe.Options) net.Conn {
	ours, theirs := net.Pipe()
	if o == nil {
		o = &pipe.Options{}
	}
	go func() { _ = pipe.Serve(a.ctx, a.locks, theirs, o) }() // a client may break the protocol
	a.t.Cleanup(func() { ours.Close() })
	return ours
}

func (a *agent) client() *pipe.Client {
	a.t.Helper()
	c, err := pipe.NewClient(a.t.Context(), a.connect(nil), "test")
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

func wantKind(t *testing.T, err error, want pipe.Kind) *pipe.Error {
	t.Helper()
	var e *pipe.Error
	if !errors.As(err, &e) || e.Kind != want {
		t.Fatalf("the error is %v, want kind %s", err, want)
	}
	return e
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

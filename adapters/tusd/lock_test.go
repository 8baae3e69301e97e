// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package tusdlock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hasplock/hasp"
	tusdlock "github.com/hasplock/hasp/adapters/tusd"
	"github.com/hasplock/hasp/memdriver"
	"github.com/tus/tusd/v2/pkg/handler"
)

// server is the locker of one server, of a store that all share.
func server(t *testing.T, store *memdriver.Store) handler.Locker {
	c, err := hasp.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return tusdlock.New(c, nil)
}

func lock(t *testing.T, l handler.Locker) handler.Lock {
	lock, err := l.NewLock("upload")
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// A server that wants an upload asks the server that has it to let go.
func TestRequestUnlock(t *testing.T) {
	store := memdriver.New()
	one, two := lock(t, server(t, store)), lock(t, server(t, store))
	asked := make(chan struct{})
	if err := one.Lock(t.Context(), func() { close(asked) }); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- two.Lock(t.Context(), func() { t.Error("no server waits for the second one") }) }()
	<-asked
	if err := one.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(two.Unlock()); err != nil {
		t.Fatal(err)
	}
	if two.Unlock() == nil {
		t.Error("it was unlocked twice")
	}
}

func TestLockTimeout(t *testing.T) {
	store := memdriver.New()
	one, two := lock(t, server(t, store)), lock(t, server(t, store))
	if err := one.Lock(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := two.Lock(ctx, func() {}); !errors.Is(err, handler.ErrLockTimeout) {
		t.Errorf("the error is %v", err)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package gooselock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	gooselock "github.com/hasplock/hasp/adapters/goose"
	"github.com/hasplock/hasp/memdriver"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"
)

// locker is one process's, of a store that all share.
func locker(t *testing.T, store *memdriver.Store) (*gooselock.Locker, *hasp.Client) {
	c, err := hasp.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return gooselock.New(c, "migrations", nil), c
}

// goose's own test of a locker.
func TestConcurrentLocking(t *testing.T) {
	store := memdriver.New()
	locktesting.TestConcurrentLocking(t, nil, func(t *testing.T) lock.Locker { l, _ := locker(t, store); return l }, time.Second)
}

func TestUnlock(t *testing.T) {
	l, locks := locker(t, memdriver.New())
	if l.Unlock(t.Context(), nil) == nil {
		t.Error("what is not held was unlocked")
	}
	if err := l.Lock(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	info, err := locks.Operator().Inspect(t.Context(), "migrations")
	if err == nil {
		err = locks.Operator().Break(t.Context(), "migrations", info.Holder.Owner)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Lock(t.Context(), nil); err != nil { // another goroutine
		t.Fatal(err)
	}
	if err := l.Unlock(t.Context(), nil); !errors.Is(err, hasp.ErrLost) {
		t.Errorf("a lock that was lost: %v", err)
	}
	if err := l.Unlock(t.Context(), nil); err != nil {
		t.Errorf("the other goroutine's: %v", err)
	}
}

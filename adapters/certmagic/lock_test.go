// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package certmagiclock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/hasplock/hasp"
	certmagiclock "github.com/hasplock/hasp/adapters/certmagic"
	"github.com/hasplock/hasp/memdriver"
)

// server is the storage of one server; all share the files and the locks.
func server(t *testing.T, dir string, store *memdriver.Store) (*certmagiclock.Storage, *hasp.Client) {
	c, err := hasp.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return certmagiclock.New(&certmagic.FileStorage{Path: dir}, c, nil), c
}

func TestOneObtains(t *testing.T) {
	ctx, dir, store := t.Context(), t.TempDir(), memdriver.New()
	one, locks := server(t, dir, store)
	two, _ := server(t, dir, store)
	if err := one.Lock(ctx, "issue"); err != nil {
		t.Fatal(err)
	}
	if err := one.Store(ctx, "certificate", []byte("pem")); err != nil {
		t.Fatal(err)
	}
	if got, err := two.TryLock(ctx, "issue"); got || err != nil {
		t.Errorf("the second one tried: %v, %v", got, err)
	}
	if err := one.RenewLockLease(ctx, "issue", time.Minute); err != nil {
		t.Error(err)
	}
	waits := make(chan error, 1)
	go func() { waits <- two.Lock(ctx, "issue") }()
	if err := one.Unlock(ctx, "issue"); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	if got, err := two.Load(ctx, "certificate"); string(got) != "pem" || err != nil {
		t.Errorf("it loads %q, %v", got, err)
	}
	if one.Unlock(ctx, "issue") == nil || one.RenewLockLease(ctx, "issue", time.Minute) == nil {
		t.Error("what is not held was unlocked, or renewed")
	}
	lose(t, locks)
	if err := two.Unlock(ctx, "issue"); !errors.Is(err, hasp.ErrLost) {
		t.Errorf("a lock that was lost: %v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if err := two.Lock(ctx, "issue"); !errors.Is(err, context.Canceled) {
		t.Errorf("without a context: %v", err)
	}
}

// lose has the lock of a name lost.
func lose(t *testing.T, locks *hasp.Client) {
	t.Helper()
	info, err := locks.Operator().Inspect(t.Context(), certmagiclock.Prefix+"issue")
	if err == nil {
		err = locks.Operator().Break(t.Context(), info.Key, info.Holder.Owner)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The next attempt after a loss locks anew; and each of two goroutines gives its own lease back.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, locks := server(t, "", memdriver.New())
		steps := []func() error{
			func() error { return s.Lock(ctx, "issue") },
			func() error { lose(t, locks); time.Sleep(hasp.DefaultTTL); return s.RenewLockLease(ctx, "issue", 0) },
			func() error { lose(t, locks); time.Sleep(hasp.DefaultTTL); return s.Lock(ctx, "issue") },
			func() error {
				if err := s.Unlock(ctx, "issue"); !errors.Is(err, hasp.ErrLost) {
					t.Errorf("the first one's loss: %v", err)
				}
				return s.RenewLockLease(ctx, "issue", 0)
			},
			func() error { return s.Unlock(ctx, "issue") },
		}
		for i, step := range steps {
			if err := step(); err != nil {
				t.Errorf("step %d: %v", i, err)
			}
		}
	})
}

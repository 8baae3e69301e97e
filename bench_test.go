// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/memdriver"
)

// What the core itself costs: memdriver answers at once.

func benchClient(b *testing.B) *hasp.Client {
	locks, err := hasp.New(memdriver.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := locks.Close(); err != nil {
			b.Error(err)
		}
	})
	return locks
}

// pair locks and releases; it may be called by any goroutine.
func pair(b *testing.B, m *hasp.Mutex) bool {
	lease, err := m.Lock(b.Context())
	if err == nil {
		err = lease.Release()
	}
	if err != nil {
		b.Error(err)
	}
	return err == nil
}

func BenchmarkLock(b *testing.B) {
	m := benchClient(b).Mutex("k", nil)
	for b.Loop() {
		pair(b, m)
	}
}

// The key stays in the process.
func BenchmarkLockKept(b *testing.B) {
	m := benchClient(b).Mutex("k", &hasp.LockOptions{Keep: time.Second})
	for b.Loop() {
		pair(b, m)
	}
}

// A context of a lease, and that of its parent, which ends it.
func BenchmarkContext(b *testing.B) {
	lease, err := benchClient(b).Mutex("k", nil).Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		lease.Context(ctx)
		cancel()
	}
}

// Each goroutine has a key of its own; 10,000 other leases are held beside.
func BenchmarkLockParallel(b *testing.B) {
	locks := benchClient(b)
	for i := range 10_000 {
		if _, err := locks.Mutex("held/"+strconv.Itoa(i), nil).Lock(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	var keys atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		m := locks.Mutex("k/"+strconv.FormatInt(keys.Add(1), 10), nil)
		for pb.Next() && pair(b, m) {
		}
	})
}

// 64 goroutines want one key.
func BenchmarkContended(b *testing.B) {
	m := benchClient(b).Mutex("k", nil)
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		all.Go(func() {
			for left.Add(-1) >= 0 && pair(b, m) {
			}
		})
	}
	all.Wait()
}

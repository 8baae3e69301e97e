// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package pipe_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/pipe"
)

// BenchmarkPair locks and releases a free key: at the store itself, through a socket by one goroutine, and by 64 on one connection.
func BenchmarkPair(b *testing.B) {
	locks, err := hasp.New(memdriver.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer locks.Close()
	path := filepath.Join(b.TempDir(), "hasp.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go func() { _ = pipe.Serve(b.Context(), locks, c, &pipe.Options{}) }()
		}
	}()
	c, err := pipe.Dial(b.Context(), "unix:"+path, "bench", 0)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	direct := func(ctx context.Context, key string) error {
		lease, err := locks.Mutex(key, nil).Lock(ctx)
		if err != nil {
			return err
		}
		return lease.Release()
	}
	socket := func(ctx context.Context, key string) error {
		lease, err := c.Lock(ctx, pipe.LockParams{Key: key})
		if err != nil {
			return err
		}
		return lease.Release()
	}
	one := func(pair func(context.Context, string) error) func(*testing.B) {
		return func(b *testing.B) {
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				began := time.Now()
				if err := pair(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		}
	}
	b.Run("store", one(direct))
	b.Run("socket", one(socket))
	b.Run("socket-64", func(b *testing.B) {
		var n atomic.Int64
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			key := fmt.Sprint(n.Add(1))
			for pb.Next() {
				if err := socket(b.Context(), key); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	})
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package haspprom_test

import (
	"context"
	"testing"

	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/memdriver"
	haspprom "github.com/hasplock/hasp/telemetry/prometheus"
)

// What metrics cost an uncontended Lock and Release: beside none, and beside an observer that
// does nothing. bench/telemetry measures it on Redis, too.
func BenchmarkPair(b *testing.B) {
	for _, c := range []struct {
		name    string
		observe func(context.Context, *event.Event)
	}{
		{"none", nil},
		{"empty", func(context.Context, *event.Event) {}},
		{"metrics", haspprom.New(nil).Observe},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := open(b, memdriver.New(), c.observe).Mutex("order:1", nil)
			b.ReportAllocs()
			for b.Loop() {
				lease, err := m.Lock(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Release(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkObserve(b *testing.B) {
	c := haspprom.New(nil)
	acquired := event.Event{Kind: event.Acquired, Engine: "memory", Key: "order:1", LeaseDelta: 1, Waited: 12345}
	released := event.Event{Kind: event.Released, Engine: "memory", Key: "order:1", LeaseDelta: -1, Held: 12345}
	b.ReportAllocs()
	for b.Loop() {
		c.Observe(b.Context(), &acquired)
		c.Observe(b.Context(), &released)
	}
}

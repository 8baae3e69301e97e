// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: a command that has run for a while keeps no idle connection to PostgreSQL: what it needs beside the one that listens is
// closed when it is answered.
func TestNoIdleConnection(t *testing.T) {
	t.Parallel()
	link := faultproxy.New(t, testserver.Postgres(t).Addr())
	var latest atomic.Int64
	link.Hook(func(c faultproxy.Chunk) bool {
		latest.Store(int64(c.Conn))
		return false
	})
	u, err := Parse("postgres://postgres@" + link.Addr() + "/postgres?sslmode=disable")
	must(t, err)
	s, err := u.Open(&Options{Sparing: true})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, s.Driver.(interface{ Init(context.Context) error }).Init(ctx)) //nolint:forcetypeassert // it panics
	for once := int64(0); latest.Load() < once+4; {                        // four in a row, each on a connection of its own
		once = latest.Load()
		for range 4 {
			if _, err := s.Driver.Inspect(ctx, "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

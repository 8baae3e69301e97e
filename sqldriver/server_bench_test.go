// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/testserver"
)

func BenchmarkPostgres(b *testing.B) {
	drivertest.Bench(b, harness(b, testserver.Postgres, newPostgres))
}

func BenchmarkMySQL(b *testing.B) {
	drivertest.Bench(b, harness(b, testserver.MariaDB, newMySQL))
}

// BenchmarkBare is the least that a lock of a session can be: two requests, and no commit.
func BenchmarkBare(b *testing.B) {
	for name, kind := range map[string]struct {
		made          func(b *testing.B) database
		lock, release string
	}{
		"Postgres": {func(b *testing.B) database { return newPostgres(b, testserver.Postgres(b)) },
			"SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"},
		"MySQL": {func(b *testing.B) database { return newMySQL(b, testserver.MariaDB(b)) },
			"SELECT GET_LOCK(?, 1)", "SELECT RELEASE_LOCK(?)"},
	} {
		b.Run(name, func(b *testing.B) {
			db := kind.made(b).pool(b)
			var keys atomic.Int64
			pair := func(loop func() bool) {
				c, err := db.Conn(b.Context())
				must(b, err)
				defer c.Close()
				key := any(keys.Add(1))
				if name == "MySQL" {
					key = fmt.Sprint(key)
				}
				for loop() {
					for _, text := range []string{kind.lock, kind.release} {
						_, err := c.ExecContext(b.Context(), text, key)
						must(b, err)
					}
				}
			}
			b.Run("Uncontended", func(b *testing.B) { pair(b.Loop) })
			b.Run("Parallel", func(b *testing.B) {
				b.SetParallelism(32)
				b.RunParallel(func(pb *testing.PB) { pair(pb.Next) })
			})
		})
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"net"
	"testing"
)

// The database servers start, and again after a kill, at the same address.
func TestDatabases(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *Server{
		"postgres":  func(t testing.TB) *Server { return Postgres(t) },
		"mariadb":   func(t testing.TB) *Server { return MariaDB(t) },
		"pgbouncer": func(t testing.TB) *Server { return PgBouncer(t, Postgres(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.Kill()
			s.Restart()
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

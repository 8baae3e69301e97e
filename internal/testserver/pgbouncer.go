// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// PgBouncer starts a pooler in front of a PostgreSQL server, which gives each transaction
// whatever session of the server is free; settings are further lines of its [pgbouncer]
// section. It skips or fails the test where PgBouncer is missing, see Require.
func PgBouncer(t testing.TB, server *Server, settings ...string) *Server {
	t.Helper()
	Variant(t, "PgBouncer")
	path := require(t, "pgbouncer", map[string]string{"pgbouncer": "pgbouncer"})
	as := unprivileged(t)
	return launch(t, spec{
		path: path,
		by:   as.by(),
		args: func(s *Server) []string {
			dir := filepath.Join(s.dir, "conf")
			ini := filepath.Join(dir, "pgbouncer.ini")
			if _, err := os.Stat(dir); err != nil {
				as.mkdir(t, s.dir, dir)
			}
			text := fmt.Sprintf("[databases]\n* = user=postgres host=127.0.0.1 port=%d\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
				"unix_socket_dir = %s\nauth_type = any\npool_mode = transaction\nignore_startup_parameters = extra_float_digits,search_path\n"+
				"max_client_conn = 500\ndefault_pool_size = 20\n", server.port, s.port, s.dir)
			for _, line := range settings {
				text += line + "\n"
			}
			must(t, os.WriteFile(ini, []byte(text), 0o644))
			return []string{ini}
		},
		ready: greetPostgres,
		taken: "address already in use",
	}, freePort)
}

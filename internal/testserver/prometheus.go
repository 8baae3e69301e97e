// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// Prometheus starts a Prometheus for the test, on a free loopback port. config is its
// configuration, in YAML; names of files in it should be absolute. It skips or fails the test
// where Prometheus is missing, see Require.
func Prometheus(t testing.TB, config string) *Server {
	t.Helper()
	Variant(t, "Prometheus")
	return launch(t, spec{
		path: require(t, "prometheus", binaries),
		args: func(s *Server) []string {
			file := filepath.Join(s.dir, "prometheus.yml")
			must(s.t, os.WriteFile(file, []byte(config), 0o600))
			return []string{
				"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(s.dir, "data"),
				"--web.listen-address=" + s.Addr(), "--log.level=warn",
			}
		},
		ready: func(ctx context.Context, s *Server) error { // once the data of an earlier run are read
			_, err := s.Get(ctx, "/-/ready")
			return err
		},
		taken: "address already in use",
	}, freePort)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"fmt"
	"net/http"
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
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				s.t.Fatalf("testserver: %v", err)
			}
			return []string{
				"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(s.dir, "data"),
				"--web.listen-address=" + s.Addr(), "--log.level=warn",
			}
		},
		ready: readyPrometheus,
		taken: "address already in use",
	}, freePort)
}

// readyPrometheus asks until the data of an earlier run are read.
func readyPrometheus(ctx context.Context, s *Server) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+"/-/ready", nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

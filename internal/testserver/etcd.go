// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// The sockets of an etcd, in its directory: it answers at the one as at its
// port, and nobody calls at the other. etcd wants a port in every address, and
// makes it a part of the file's name.
const (
	etcdSocket = "sock:1"
	etcdPeers  = "peer:1"
)

// Etcd starts an etcd of one member for the test, which listens on a free
// loopback port and writes through to the disk, as it always does. It skips or
// fails the test where etcd is missing, see Require.
func Etcd(t testing.TB) *Server {
	t.Helper()
	path := require(t, "etcd", binaries)
	return launch(t, spec{
		path: path,
		args: func(s *Server) []string {
			url := "http://" + s.Addr()
			const nowhere = "http://localhost:1" // there are no other members to find it
			return []string{
				"--name", "one", "--data-dir", filepath.Join(s.dir, "data"),
				"--listen-client-urls", url + ",unix://" + etcdSocket, "--advertise-client-urls", url,
				"--listen-peer-urls", "unix://" + etcdPeers, "--initial-advertise-peer-urls", nowhere,
				"--initial-cluster", "one=" + nowhere,
			}
		},
		ready: healthyEtcd,
		taken: "address already in use",
		stale: []string{etcdSocket, etcdPeers},
	}, freePort)
}

// healthyEtcd asks over the unix socket, as pingRedis does and for its reason.
func healthyEtcd(ctx context.Context, s *Server) error {
	var d net.Dialer
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", filepath.Join(s.dir, etcdSocket))
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/health", nil)
	if err != nil {
		return err
	}
	answer, err := tr.RoundTrip(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("its health is %s", answer.Status)
	}
	return nil
}

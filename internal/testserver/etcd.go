// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
)

// The sockets of an etcd, in its directory: it answers at the one as at its
// port, and the other is not used. etcd wants a port in every address, and
// makes it a part of the file's name.
const (
	etcdSocket = "sock:1"
	etcdPeers  = "peer:1"
)

// Etcd starts an etcd of one member for the test, which listens on a free
// loopback port and writes through to the disk, as it always does. args are further
// arguments. It skips or fails the test where etcd is missing, see Require.
func Etcd(t testing.TB, args ...string) *Server {
	t.Helper()
	return etcd(t, require(t, "etcd", binaries), args)
}

// Etcd36 is Etcd with the version 3.6 that scripts/servers builds, whatever the system has. Its
// name for Require is etcd36.
func Etcd36(t testing.TB, args ...string) *Server {
	t.Helper()
	Variant(t, "etcd 3.6")
	return etcd(t, etcd36(t), args)
}

// etcd36 is the path of etcd 3.6.
func etcd36(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "..", "..", ".bin", "etcd-3.6")
	RequireFile(t, "etcd36", path)
	return path
}

func etcd(t testing.TB, path string, args []string) *Server {
	t.Helper()
	return launch(t, spec{
		path: path,
		args: func(s *Server) []string {
			url := "http://" + s.Addr()
			const nowhere = "http://localhost:1" // there are no other members to find it
			return append([]string{
				"--name", "one", "--data-dir", filepath.Join(s.dir, "data"),
				"--listen-client-urls", url + ",unix://" + etcdSocket, "--advertise-client-urls", url,
				"--listen-peer-urls", "unix://" + etcdPeers, "--initial-advertise-peer-urls", nowhere,
				"--initial-cluster", "one=" + nowhere,
			}, args...)
		},
		ready: healthyEtcd,
		taken: "address already in use",
		stale: []string{etcdSocket, etcdPeers},
	}, freePort)
}

// healthyEtcd asks over the unix socket, as pingRedis does and for its reason.
func healthyEtcd(ctx context.Context, s *Server) error {
	_, err := get(ctx, "http://etcd/health", "", filepath.Join(s.dir, etcdSocket))
	return err
}

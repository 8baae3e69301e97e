// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// MariaDB starts a MariaDB server for the test, on a free loopback port, with the user
// root, which needs no password. args are further arguments of mariadbd, and win over the
// defaults. It skips or fails the test where MariaDB is missing, see Require.
//
// A commit is written to the system before it is answered, but not synced to the disk:
// tests kill the process, not the machine.
func MariaDB(t testing.TB, args ...string) *Server {
	t.Helper()
	return MariaDBIn(t, nil, args...)
}

var mariadbNew template

// MariaDBIn is MariaDB with more in the environment, each "NAME=value", over every
// Restart.
func MariaDBIn(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	path := require(t, "mariadb", binaries)
	install := require(t, "mariadb", map[string]string{"mariadb": "mariadb-install-db"})
	const small = "--innodb-log-file-size=16M" // of 96, which each server would copy
	me, err := user.Current()
	must(t, err)
	return launch(t, spec{
		path: path,
		args: func(s *Server) []string {
			// A server that starts removes all temporary tables from its tmpdir: also those of
			// another server with the same tmpdir.
			data := filepath.Join(s.dir, "data")
			if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
				mariadbNew.copy(t, account{}, data, func(dir, data string) {
					account{}.run(t, dir, install, "--no-defaults", "--datadir="+data, "--user="+me.Username,
						"--auth-root-authentication-method=normal", "--skip-test-db", "--tmpdir="+dir, small)
				})
			}
			return append([]string{
				"--no-defaults", "--user=" + me.Username, "--datadir=" + data, "--socket=" + s.Socket(), "--pid-file=" + filepath.Join(s.dir, "pid"),
				"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.port), "--skip-name-resolve",
				"--tmpdir=" + s.dir, "--debug-no-sync", small, "--innodb-buffer-pool-size=64M", "--max-connections=500", "--performance-schema=off",
			}, args...)
		},
		env:   env,
		ready: greetMariaDB,
		taken: "Address already in use",
	}, freePort)
}

// greetMariaDB reads the greeting at the unix socket, as pingRedis does and for its
// reason.
func greetMariaDB(ctx context.Context, s *Server) error {
	return talk(ctx, "unix", s.Socket(), nil, time.Second, func(r net.Conn) error {
		var greeting [5]byte // a packet's head and the version of the protocol
		_, err := io.ReadFull(r, greeting[:])
		if err == nil && greeting[4] != 10 {
			err = fmt.Errorf("it greets with %x", greeting)
		}
		return err
	})
}

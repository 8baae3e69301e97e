// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Postgres starts a PostgreSQL server for the test, on a free loopback port, with the
// superuser postgres, which needs no password. settings are further ones, each
// "name=value", and win over the defaults. It skips or fails the test where PostgreSQL
// is missing, see Require.
//
// A commit is written to the system before it is answered, but not synced to the disk:
// tests kill the process, not the machine.
func Postgres(t testing.TB, settings ...string) *Server {
	t.Helper()
	return PostgresIn(t, nil, settings...)
}

// PostgresIn is Postgres with more in the environment, each "NAME=value", over every
// Restart.
func PostgresIn(t testing.TB, env []string, settings ...string) *Server {
	t.Helper()
	bin := postgresBin(t)
	as := unprivileged(t)
	return postgresFrom(t, env, as, func(s *Server, data string) {
		postgresNew.copy(t, as, data, func(dir, data string) {
			as.run(t, dir, filepath.Join(bin, "initdb"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
				"-D", data, "--no-sync")
		})
	}, append([]string{"wal_level=minimal", "max_wal_senders=0"}, settings...)...)
}

var postgresNew template

// PostgresReplicates are the settings of a server that may have a standby.
var PostgresReplicates = []string{"wal_level=replica", "max_wal_senders=8"}

// PostgresStandby starts a standby of a server that was started with PostgresReplicates, which answers what only reads. It
// becomes a primary with pg_promote().
func PostgresStandby(t testing.TB, primary *Server, settings ...string) *Server {
	t.Helper()
	Variant(t, "a standby")
	as := unprivileged(t)
	return postgresFrom(t, nil, as, func(s *Server, data string) {
		as.mkdir(t, s.dir, data)
		as.run(t, s.dir, filepath.Join(postgresBin(t), "pg_basebackup"), "-U", "postgres", "-h", "127.0.0.1", "-p", strconv.Itoa(primary.port),
			"-c", "fast", "-R", "-D", data, "--no-sync")
	}, append(PostgresReplicates, settings...)...)
}

// postgresFrom starts a server with what fill puts into the folder of its data, which it makes.
func postgresFrom(t testing.TB, env []string, as account, fill func(s *Server, data string), settings ...string) *Server {
	t.Helper()
	bin := postgresBin(t)
	s := launch(t, spec{
		path: filepath.Join(bin, "postgres"),
		// Not in setpriv's own environment: what libfaketime makes as root, postgres may not open.
		by: slices.Concat(as.by(), under(env)),
		args: func(s *Server) []string {
			data := filepath.Join(s.dir, "data")
			if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
				fill(s, data)
			} else {
				awaitNobody(data)
			}
			args := []string{"-D", data, "-p", strconv.Itoa(s.port)}
			for _, set := range append([]string{
				"listen_addresses=127.0.0.1", "unix_socket_directories=" + s.dir, "fsync=off", "full_page_writes=off",
				"shared_buffers=32MB", "max_connections=500", "jit=off", "dynamic_shared_memory_type=mmap",
			}, settings...) {
				args = append(args, "-c", set)
			}
			return args
		},
		ready: greetPostgres,
		taken: "Address already in use",
	}, freePort)
	t.Cleanup(func() { // before the directory is removed
		s.endPostgres()
	})
	return s
}

// endPostgres has the server end with all of its processes: those of a server that was
// killed go on for a moment.
func (s *Server) endPostgres() {
	p := s.current()
	select {
	case <-p.done:
	default:
		_ = cont(p.proc) // it may stand still
		if err := p.proc.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			s.t.Errorf("testserver: end postgres: %v", err)
		}
		select {
		case <-p.done:
		case <-time.After(startLimit):
		}
	}
	data := filepath.Join(s.dir, "data")
	awaitNobody(data)
	text, _ := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if f := strings.Fields(string(text)); len(f) > 7 { // it was killed, and its shared memory would stay; the test's context has ended
		_ = exec.CommandContext(context.Background(), "ipcrm", "-m", f[7]).Run()
	}
}

// awaitNobody waits until no process works in a directory, as each of a PostgreSQL
// server does: it does not start beside those of its predecessor. Where /proc does
// not say so, it does not wait.
func awaitNobody(dir string) {
	for limit := time.Now().Add(startLimit); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		links, err := filepath.Glob("/proc/[0-9]*/cwd")
		if err != nil {
			return
		}
		at := false
		for _, l := range links {
			wd, err := os.Readlink(l)
			at = at || err == nil && wd == dir
		}
		if !at {
			return
		}
	}
}

// greetPostgres opens a session over the unix socket, as pingRedis does and for its
// reason.
func greetPostgres(ctx context.Context, s *Server) error {
	const start = "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00"
	hello := append(binary.BigEndian.AppendUint32(nil, uint32(4+len(start))), start...)
	return talk(ctx, "unix", filepath.Join(s.dir, fmt.Sprintf(".s.PGSQL.%d", s.port)), hello, time.Second, func(r net.Conn) error {
		var kind [1]byte
		_, err := io.ReadFull(r, kind[:])
		if err == nil && kind[0] != 'R' {
			err = fmt.Errorf("it answers with a message of kind %q", kind)
		}
		return err
	})
}

// RequirePostgres is Require for PostgreSQL.
func RequirePostgres(t testing.TB) {
	t.Helper()
	postgresBin(t)
}

// postgresBin returns the folder of the newest PostgreSQL's programs.
func postgresBin(t testing.TB) string {
	t.Helper()
	best, version := "", 0
	paths, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // Debian's, not on the PATH
	must(t, err)
	for _, path := range paths {
		bin := filepath.Dir(path)
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && n > version {
			best, version = bin, n
		}
	}
	if best != "" {
		return best
	}
	path, err := look("postgres")
	if err != nil {
		missing(t, "postgres", "postgres", err)
	}
	return filepath.Dir(path)
}

// account is the user of a server that refuses to run as root.
type account struct {
	name     string // empty: as this process
	uid, gid int
}

// unprivileged returns an account that is not root's.
func unprivileged(t testing.TB) account {
	t.Helper()
	if os.Getuid() != 0 {
		return account{}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		must(t, errors.Join(err, err2))
		return account{name: name, uid: uid, gid: gid}
	}
	t.Fatalf("testserver: there is neither a user postgres nor nobody")
	return account{}
}

// by is the program that turns into another, as the account; the kernel forgets that
// it is to die with its parent when the user changes.
func (a account) by() []string {
	if a.name == "" {
		return nil
	}
	return []string{"setpriv", "--pdeathsig", "KILL", "--reuid", a.name, "--regid", strconv.Itoa(a.gid), "--clear-groups", "--"}
}

// under is the program that turns into another with more in its environment.
func under(env []string) []string {
	if env == nil {
		return nil
	}
	return append([]string{"env"}, env...)
}

// mkdir makes a directory for the account, and gives it the parent, too.
func (a account) mkdir(t testing.TB, parent, dir string) {
	t.Helper()
	err := os.Mkdir(dir, 0o700)
	if a.name != "" && err == nil {
		err = errors.Join(os.Chown(parent, a.uid, a.gid), os.Chown(dir, a.uid, a.gid))
	}
	must(t, err)
}

// run runs a program to its end, as the account.
func (a account) run(t testing.TB, dir string, line ...string) {
	t.Helper()
	line = append(a.by(), line...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("testserver: %v: %v\n%s", line, err, out)
	}
}

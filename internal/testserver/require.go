// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// binaries are the programs that an engine's tests, or those of a shell, need.
// SQLite needs none: it is compiled in.
var binaries = map[string]string{
	"bash":       "bash",
	"busybox":    "busybox",
	"curator":    "java",
	"dash":       "dash",
	"etcd":       "etcd",
	"ksh93":      "ksh93",
	"mariadb":    "mariadbd",
	"mksh":       "mksh",
	"fish":       "fish",
	"prometheus": "prometheus",
	"promtool":   "promtool",
	"redis":      "redis-server",
	"sqlite":     "",
	"sudo":       "sudo",
	"zookeeper":  "java",
	"zsh":        "zsh",
}

// Require says that the test needs the server of engine ("redis", "etcd", "sqlite", "zookeeper"),
// a shell ("bash", "busybox", "dash", "fish", "ksh93", "mksh", "zsh"), "sudo", or "promtool".
// Where it is missing the test is skipped, with a message; it fails where the
// comma-separated HASP_TEST_REQUIRE names the engine, so that a machine that
// should have every server cannot pass by skipping. An engine that this package
// does not know fails the test.
func Require(t testing.TB, engine string) {
	t.Helper()
	require(t, engine, binaries)
}

// RequireFile is Require for a file that the engine's tests need beside its program.
func RequireFile(t testing.TB, engine, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		missing(t, engine, path, err)
	}
}

// Variant leaves a test to make test-all: it differs from another test of make test only in what is named.
func Variant(t testing.TB, difference string) {
	t.Helper()
	if testing.Testing() && testing.Short() {
		t.Skipf("left to make test-all: %s", difference)
	}
}

// require returns the path of the engine's program, empty when it needs none.
func require(t testing.TB, engine string, known map[string]string) string {
	t.Helper()
	name, ok := known[engine]
	if !ok {
		t.Fatalf("testserver: no engine is called %q", engine)
	}
	if name == "" {
		return ""
	}
	path, err := look(name)
	if err == nil {
		return path
	}
	missing(t, engine, name, err)
	return ""
}

// missing ends a test that cannot run without something.
func missing(t testing.TB, engine, what string, err error) {
	t.Helper()
	if required(engine) {
		t.Fatalf("testserver: HASP_TEST_REQUIRE names %s, but %s is not installed: %v", engine, what, err)
	}
	t.Skipf("SKIPPED WITHOUT A SERVER: %s is not installed; this test of %s did not run", what, engine)
}

func required(engine string) bool {
	for name := range strings.SplitSeq(os.Getenv("HASP_TEST_REQUIRE"), ",") {
		if strings.TrimSpace(name) == engine {
			return true
		}
	}
	return false
}

// look finds a program on PATH, or where distributions put daemons that are
// not on the PATH of an ordinary user.
func look(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	dirs := []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin"}
	if i := slices.IndexFunc(dirs, func(dir string) bool {
		_, err := exec.LookPath(filepath.Join(dir, name))
		return err == nil
	}); i >= 0 {
		return filepath.Join(dirs[i], name), nil
	}
	return "", err
}

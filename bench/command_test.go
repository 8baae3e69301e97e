// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestS7(t *testing.T) {
	smoke(t, &s7, variant{n: 1}, baseline, "hasp (SQLite)", "flock", "etcdctl lock", "no lock")
}

// bare runs commands under no lock, as children of a shell.
func bare(work ...string) *exec.Cmd {
	return exec.Command("sh", slices.Concat([]string{"-c", `"$@"; exit $?`, "sh"}, work)...)
}

// A command that finds another inside is noticed.
func TestInTurn(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := inTurn(bare, dir); err == nil || !strings.Contains(err.Error(), "not in turn") {
		t.Errorf("somebody is inside: %v", err)
	}
}

func TestMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it is read from /proc")
	}
	n, err := memory(bare)
	if err != nil || n < 100<<10 || n > 100<<20 {
		t.Errorf("a shell has %v bytes: %v", n, err)
	}
	if n, err := memory(func(...string) *exec.Cmd { return exec.Command("echo", "nothing") }); err == nil {
		t.Errorf("read from nothing: %v", n)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hasplock/hasp/internal/testserver"
)

// store is where a run of the command keeps its locks.
type store struct{ kind, url string }

// stores returns the store that a URL names; without one, a SQLite file and a
// Redis of our own.
func stores(t *tb, url, dir string) []store {
	if url != "" {
		kind, _, _ := strings.Cut(url, ":")
		return []store{{kind, url}}
	}
	return []store{
		{"sqlite", "sqlite:" + filepath.Join(dir, "locks.db")},
		{"redis", "redis://" + testserver.Redis(t).Addr()},
	}
}

// folder makes a temporary directory.
func folder(t *tb) string {
	dir, err := os.MkdirTemp("", "hasp-show-")
	t.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // in the folder for such things
	return dir
}

// build compiles the command.
func build(t *tb, dir string) (path string) {
	root, err := exec.CommandContext(t.ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/hasplock/hasp").Output()
	if err != nil {
		t.Fatalf("go list finds no checkout of hasp; run this in one: %w", err)
	}
	path = filepath.Join(dir, "hasp")
	cmd := exec.CommandContext(t.ctx, "go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), "cmd", "hasp")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %w\n%s", err, out)
	}
	return path
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd reads the unit without a complaint, and finds it confined.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	b, err := os.ReadFile("systemd/hasp-serve.service")
	must(t, err)
	// It wants the program to be there.
	path := filepath.Join(t.TempDir(), "hasp-serve.service")
	must(t, os.WriteFile(path, []byte(strings.Replace(string(b), "/usr/bin/hasp", "/bin/true", 1)), 0o600))
	for _, args := range [][]string{{"verify", "--man=no"}, {"security", "--offline=true", "--threshold=20"}} { // of 100
		out, err := exec.CommandContext(t.Context(), analyze, append(args, path)...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}

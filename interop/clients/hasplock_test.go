// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// The client of hasp agent for Python passes its own tests, with the command of this tree; they run its README's examples, too.
func TestHasplock(t *testing.T) {
	testserver.Variant(t, "hasp agent has a client in Python")
	python, _ := exec.LookPath("python3")
	testserver.RequireFile(t, "python", python)
	file, err := command()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-m", "unittest", "discover", "-s", "tests", "-v")
	cmd.Dir = "../../clients/python"
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(file)+string(os.PathListSeparator)+os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nOK") {
		t.Errorf("the tests of clients/python: %v\n%s", err, out)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// The client for Node passes its tests and keeps the rules of the protocol, and the examples of its README run as they stand.
func TestNodeClient(t *testing.T) {
	testserver.Variant(t, "the client is in JavaScript, and the agent's own tests have one in Go")
	node, _ := exec.LookPath("node") // empty, which is no file, where it is missing
	testserver.RequireFile(t, "node", node)
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "hasp"), ".")
	build.Dir = "../cmd/hasp"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = "../clients/node"
		cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "HASP_STORE=sqlite:"+filepath.Join(dir, "hasp.db"), "HASP_AGENT=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run(node, "--test")
	run(filepath.Join(dir, "hasp"), "verify", "--client", "node conformance.mjs")
	says := []string{"saved with fence ", "working\n"}
	examples := blocks(t, "../clients/node/README.md", "js")
	if len(examples) != len(says) {
		t.Fatalf("README.md has %d examples, and the test knows %d", len(examples), len(says))
	}
	for i, b := range examples {
		if out := run(node, "--input-type=module", "-e", b.text); !strings.HasPrefix(out, says[i]) {
			t.Errorf("README.md:%d says %q, want %q", b.line, out, says[i])
		}
	}
}

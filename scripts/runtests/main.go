// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command runtests runs the tests of the modules in the folders that it is
// given, all with one go test, prints what failed and what was skipped, and ends
// with one line:
//
//	N passed, N failed
//
// Flags after "--" go to go test. A test with subtests is not counted in
// addition to them. A package that fails without a failing test (it does not
// compile, it panics, it times out) counts as one failure. The exit code
// is 1 when anything failed or nothing ran.
package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

func main() {
	dirs, flags := os.Args[1:], []string(nil)
	if i := slices.Index(dirs, "--"); i >= 0 {
		dirs, flags = dirs[:i], dirs[i+1:]
	}
	r := newReport(os.Stdout)
	run(r, dirs, flags)
	r.summary()
	if r.failed > 0 || r.passed == 0 {
		os.Exit(1)
	}
}

// run tests modules, which go.work joins: packages of different ones run at once.
func run(r *report, dirs, flags []string) {
	args := slices.Concat([]string{"test", "-json"}, flags)
	for _, dir := range dirs {
		path := filepath.Join(dir, "...")
		if !filepath.IsAbs(path) {
			path = "./" + path // not a package of the standard library
		}
		args = append(args, path)
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.fail("go test", err.Error())
		return
	}
	before := r.failed
	r.read(out)
	_, _ = io.Copy(io.Discard, out) // after a line too long to read
	if err := cmd.Wait(); err != nil && r.failed == before {
		r.fail("go test", err.Error())
	}
}

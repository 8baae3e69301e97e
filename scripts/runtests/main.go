// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command runtests runs the tests of the modules in the folders that it is
// given, prints what failed and what was skipped, and ends with one line:
//
//	N passed, N failed
//
// Flags after "--" go to go test. A test that has subtests is not counted
// beside them. A package that fails without a failing test (it does not
// compile, it panics, it runs out of time) counts as one failure. The exit code
// is 1 when anything failed or nothing ran.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

func main() {
	dirs, flags := os.Args[1:], []string(nil)
	if i := slices.Index(dirs, "--"); i >= 0 {
		dirs, flags = dirs[:i], dirs[i+1:]
	}
	r := newReport(os.Stdout)
	for _, dir := range dirs {
		fmt.Printf("\n== %s\n", dir)
		run(r, dir, flags)
	}
	r.summary()
	if r.failed > 0 || r.passed == 0 {
		os.Exit(1)
	}
}

// run tests one module.
func run(r *report, dir string, flags []string) {
	cmd := exec.Command("go", slices.Concat([]string{"test", "-json"}, flags, []string{"./..."})...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.fail(dir, err.Error())
		return
	}
	before := r.failed
	r.read(out)
	_, _ = io.Copy(io.Discard, out) // after a line too long to read
	if err := cmd.Wait(); err != nil && r.failed == before {
		r.fail(dir, "go test: "+err.Error())
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command runtests runs the tests of the modules in the folders that it is
// given, all with one go test, prints what failed and what was skipped, and ends
// with one line:
//
//	N passed, N failed
//
// Flags after "--" go to go test. With -race among them, the packages that try less
// under the race detector are tested once more, without it.
//
// A test with subtests is not counted in addition to them. A package that fails without
// a failing test (it does not compile, it panics, it times out) counts as one
// failure. The exit code is 1 when anything failed or nothing ran.
package main

import (
	"fmt"
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
	if i := slices.Index(flags, "-race"); i >= 0 {
		if again := belonging(dirs, shortened); len(again) > 0 {
			fmt.Println("without the race detector, and in full:")
			goTest(r, slices.Delete(slices.Clone(flags), i, i+1), again)
		}
	}
	r.summary()
	if r.failed > 0 || r.passed == 0 {
		os.Exit(1)
	}
}

// longest are the packages that take longest. They begin first, since the last one
// to end has the machine to itself. verify/campaign is not one of them: dozens of its
// processes are judged by the clock, so it comes when hardly anything else runs.
var longest = []string{
	"cmd/hasp", "redisdriver", "sqldriver", "zkdriver", "verify", "etcddriver", "verify/modes", "verify/simulate", "scripts/releasetest",
	"sqldriver/pgxlisten", "interop", "drivertest", "quorum", "bench",
}

// shortened are those that try less under the race detector, which makes them ten
// times slower.
var shortened = []string{"memdriver", "quorum", "verify/model"}

// run tests modules, which go.work joins: packages of different ones run at once.
func run(r *report, dirs, flags []string) {
	packages := belonging(dirs, longest)
	for _, dir := range dirs {
		packages = append(packages, local(filepath.Join(dir, "...")))
	}
	goTest(r, flags, packages)
}

// belonging returns those of the packages that are in a module of dirs.
func belonging(dirs, packages []string) (in []string) {
	for _, pkg := range packages {
		module := pkg
		for module != "." && !isModule(module) {
			module = filepath.Dir(module)
		}
		if isModule(module) && slices.ContainsFunc(dirs, func(dir string) bool { return filepath.Clean(dir) == module }) {
			in = append(in, local(pkg))
		}
	}
	return in
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// local is a path that is not taken for a package of the standard library.
func local(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "./" + path
}

func goTest(r *report, flags, packages []string) {
	cmd := exec.Command("go", slices.Concat([]string{"test", "-json"}, flags, packages)...)
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

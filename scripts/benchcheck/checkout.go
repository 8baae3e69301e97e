// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// worktree checks a commit out into dir. remove removes it again, even if ctx has
// ended.
func worktree(ctx context.Context, commit, dir string) (remove func(), err error) {
	if strings.HasPrefix(commit, "-") { // git would parse it as an option
		return nil, fmt.Errorf("%q is no commit", commit)
	}
	if _, err := output(exec.CommandContext(ctx, "git", "worktree", "prune")); err != nil { // left by a killed run
		return nil, err
	}
	if _, err := output(exec.CommandContext(ctx, "git", "worktree", "add", "--quiet", "--detach", dir, commit)); err != nil {
		return nil, err
	}
	return func() {
		if _, err := output(exec.Command("git", "worktree", "remove", "--force", dir)); err != nil {
			fmt.Fprintln(os.Stderr, "benchcheck:", err)
		}
	}, nil
}

// benchmarks is the compiled test binary of a package with benchmarks.
type benchmarks struct {
	path   string // import path
	dir    string // of its source, where tests run
	binary string
}

var isBenchmark = regexp.MustCompile(`(?m)^func Benchmark\w*\(\w+ \*testing\.B\)`)

// prepare compiles all packages of a checkout that have benchmarks into bin.
func prepare(ctx context.Context, top, bin string) (found []*benchmarks, err error) {
	modules := exec.CommandContext(ctx, filepath.Join(top, "scripts", "modules"))
	folders, err := output(modules)
	if err != nil {
		return nil, err
	}
	for module := range strings.FieldsSeq(string(folders)) {
		list := exec.CommandContext(ctx, "go", "list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "./...")
		list.Dir = filepath.Join(top, module)
		text, err := output(list)
		if err != nil {
			return nil, err
		}
		for d := json.NewDecoder(strings.NewReader(string(text))); ; {
			var p struct {
				Dir, ImportPath           string
				TestGoFiles, XTestGoFiles []string
			}
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			has, err := anyBenchmark(p.Dir, append(p.TestGoFiles, p.XTestGoFiles...))
			if err != nil {
				return nil, err
			}
			if has {
				found = append(found, &benchmarks{path: p.ImportPath, dir: p.Dir,
					binary: filepath.Join(bin, strconv.Itoa(len(found))+".test")})
			}
		}
	}
	for _, p := range found {
		compile := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.binary, ".")
		compile.Dir = p.dir
		if _, err := output(compile); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func anyBenchmark(dir string, files []string) (bool, error) {
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return false, err
		}
		if isBenchmark.Match(text) {
			return true, nil
		}
	}
	return false, nil
}

// run runs each benchmark once and appends what it printed to a file.
func (p *benchmarks) run(ctx context.Context, o options, results string) error {
	cmd := exec.CommandContext(ctx, p.binary, "-test.run=^$", "-test.bench="+o.bench, "-test.benchmem",
		"-test.benchtime="+o.time.String(), "-test.timeout=5m")
	cmd.Dir = p.dir
	// Servers of interrupted benchmarks leave their files here.
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(results))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", p.path, err, out)
	}
	file, err := os.OpenFile(results, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(out)
	return errors.Join(err, file.Close())
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// goPackage is go list's description of a package.
type goPackage struct {
	Dir, ImportPath, Name string
	GoFiles, CgoFiles     []string
}

func list(ctx context.Context, top, path string) (goPackage, error) {
	var p goPackage
	out, err := output(ctx, top, "go", "list", "-json=Dir,ImportPath,Name,GoFiles,CgoFiles", path)
	if err == nil {
		err = json.Unmarshal(out, &p)
	}
	return p, err
}

// build instruments a package of the checkout at top, and builds the tests of every
// killer with it in place of the original, which stays unchanged.
func build(ctx context.Context, top, dir, pkg string, killers []string) ([]mutant, []*binary, error) {
	p, err := list(ctx, top, pkg)
	if err != nil {
		return nil, nil, err
	}
	var mutants []mutant
	overlay := map[string]string{}
	put := func(name string, text []byte) error {
		instead := filepath.Join(dir, strconv.Itoa(len(overlay))+".go")
		overlay[filepath.Join(p.Dir, name)] = instead
		return os.WriteFile(instead, text, 0o600)
	}
	for _, name := range p.GoFiles {
		source, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, nil, err
		}
		from, err := filepath.Rel(top, filepath.Join(p.Dir, name))
		if err != nil {
			return nil, nil, err
		}
		text, some, err := instrument(filepath.ToSlash(from), source, len(mutants)+1)
		if err == nil {
			mutants = append(mutants, some...)
			err = put(name, text)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := put("zz_mutants.go", []byte(runtimeSource(p.Name, len(mutants)))); err != nil {
		return nil, nil, err
	}
	config, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, nil, err
	}
	var binaries []*binary
	for i, k := range killers {
		killer, err := list(ctx, top, k)
		if err != nil {
			return nil, nil, err
		}
		b := &binary{pkg: k, dir: killer.Dir, file: filepath.Join(dir, fmt.Sprintf("%d.test", i)), patience: 3 * time.Second}
		if _, err := output(ctx, top, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", b.file, k); err != nil {
			return nil, nil, err
		}
		binaries = append(binaries, b)
	}
	return mutants, binaries, nil
}

// output returns a command's output; its standard error is in the error.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaint.Bytes())
	}
	return out, nil
}

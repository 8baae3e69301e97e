// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	luaDriver = "redisdriver"
	luaDir    = luaDriver + "/lua/src"
)

// embedded is how the driver embeds its scripts; it is replaced, so that the tests read
// them from their working folder, and are built once for all mutants.
var embedded = regexp.MustCompile(`(?m)^//go:embed lua/\*\.lua\nvar sources embed\.FS$`)

const instead = `var _ embed.FS

var sources mutantFiles

type mutantFiles struct{}

func (mutantFiles) ReadFile(name string) ([]byte, error) { return mutantOS.ReadFile(name) }
`

// luaKiller runs the driver's tests on mutated scripts.
type luaKiller struct {
	file   string            // the tests
	text   map[string][]byte // of every source of the scripts
	rounds []luaRound
}

// luaRound is one run of tests, and how long it takes without a mutant.
type luaRound struct {
	args []string
	took time.Duration
}

// lua judges the mutants of the sources of the Redis scripts. A mutant is generated into
// every script; the comparison with the engine in memory judges it first, then the tests
// that are quick, and last the comparison of longer sequences. One that Redis does not compile does not count.
func lua(ctx context.Context, atOnce int, r *report, wanted func(mutant) bool) error {
	dir, err := os.MkdirTemp("", "hasp-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	k := &luaKiller{file: filepath.Join(dir, "lua.test"), text: map[string][]byte{}}
	if err := k.build(ctx, dir); err != nil {
		return err
	}
	mutants := map[string]luaMutant{}
	var some []mutant
	sources, err := filepath.Glob(luaDir + "/*.lua")
	if err != nil {
		return err
	}
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(file)
		k.text[name] = text
		for _, m := range mutateLua(name, string(text)) {
			if wanted(m.mutant) {
				mutants[m.key()] = m
				some = append(some, m.mutant)
			}
		}
	}
	r.expect(some)
	if err := k.measure(ctx, dir); err != nil {
		return err
	}
	return all(ctx, atOnce, r.left("./"+luaDir, some), func(m mutant) error {
		v, viable, err := k.judge(ctx, dir, mutants[m.key()])
		if err == nil && viable {
			r.add("./"+luaDir, v)
		}
		return err
	})
}

func (k *luaKiller) build(ctx context.Context, dir string) error {
	top, err := os.Getwd()
	if err != nil {
		return err
	}
	name := filepath.Join(top, luaDriver, "script.go")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !embedded.Match(text) {
		return fmt.Errorf("%s does not embed the scripts as it did", name)
	}
	text = embedded.ReplaceAllLiteral(text, []byte(instead))
	text = bytes.Replace(text, []byte("import ("), []byte("import (\n\tmutantOS \"os\""), 1)
	put := filepath.Join(dir, "script.go")
	config, err := json.Marshal(map[string]any{"Replace": map[string]string{name: put}})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.WriteFile(put, text, 0o600), os.WriteFile(file, config, 0o600)); err != nil {
		return err
	}
	_, err = output(ctx, top, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", k.file, "./"+luaDriver)
	return err
}

// scripts makes a folder with the scripts of a mutant. It returns false if they cannot be
// generated.
func (k *luaKiller) scripts(ctx context.Context, dir string, m luaMutant) (string, bool, error) {
	work, err := os.MkdirTemp(dir, "scripts-")
	if err != nil {
		return "", false, err
	}
	at := filepath.Join(work, "lua", "src")
	err = os.MkdirAll(at, 0o755)
	for name, text := range k.text {
		if name == m.file {
			text = []byte(m.text)
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(at, path.Base(name)), text, 0o600))
	}
	old, globErr := filepath.Glob(luaDriver + "/lua/*.lua")
	others, globErr2 := filepath.Glob(luaDriver + "/*.*")
	err = errors.Join(err, globErr, globErr2)
	for _, name := range others { // other files that the tests read
		whole, absErr := filepath.Abs(name)
		err = errors.Join(err, absErr, os.Symlink(whole, filepath.Join(work, filepath.Base(name))))
	}
	for _, name := range old { // those that are to be written
		text, readErr := os.ReadFile(name)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(work, "lua", filepath.Base(name)), text, 0o600))
	}
	if err != nil {
		return "", false, err
	}
	_, err = output(ctx, work, k.file, "-test.run=^TestScriptsAreGenerated$", "-generate")
	return work, err == nil, ctx.Err()
}

// measure chooses the rounds, on scripts without a mutant.
func (k *luaKiller) measure(ctx context.Context, dir string) error {
	work, ok, err := k.scripts(ctx, dir, luaMutant{})
	if err != nil || !ok {
		return fmt.Errorf("the scripts cannot be generated: %w", err)
	}
	out, err := output(ctx, work, k.file, "-test.v", "-test.skip=Equal|Suite|^Fuzz", "-test.parallel=6")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	k.rounds = []luaRound{
		{args: []string{"-test.run=^TestScriptsEqualMemory$", "-equal=1"}},
		{args: []string{"-test.run=^TestScriptsEqualMemory$", "-equal=2"}},
		{args: []string{"-test.run=^(" + strings.Join(quick(string(out), 300*time.Millisecond), "|") + ")$"}},
		{args: []string{"-test.run=^TestScriptsEqualMemory$", "-equal=3"}},
	}
	for i := range k.rounds {
		start := time.Now()
		if out, err := output(ctx, work, k.file, k.rounds[i].args...); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		k.rounds[i].took = time.Since(start)
	}
	return nil
}

var passed = regexp.MustCompile(`(?m)^ *--- PASS: ([^/\s]+)(?:/\S+)? \((\d+\.\d+)s\)$`)

// quick returns the tests that passed and of which no part took longer than a limit.
func quick(out string, limit time.Duration) []string {
	var names []string
	longest := map[string]time.Duration{}
	for _, m := range passed.FindAllStringSubmatch(out, -1) {
		if _, known := longest[m[1]]; !known {
			names = append(names, m[1])
		}
		seconds, _ := strconv.ParseFloat(m[2], 64) // digits
		longest[m[1]] = max(longest[m[1]], time.Duration(seconds*float64(time.Second)))
	}
	var some []string
	for _, name := range names {
		if longest[name] <= limit {
			some = append(some, name)
		}
	}
	return some
}

// judge runs the rounds until a test fails.
func (k *luaKiller) judge(ctx context.Context, dir string, m luaMutant) (v verdict, viable bool, err error) {
	v.mutant = m.mutant
	work, ok, err := k.scripts(ctx, dir, m)
	if err != nil || !ok {
		return v, false, err
	}
	defer os.RemoveAll(work)
	for _, r := range k.rounds {
		b := &binary{dir: work, file: k.file, patience: 10*time.Second + 5*r.took}
		by, timeout, out, err := b.run(ctx, r.args, b.patience)
		if strings.Contains(out, "Error compiling script") {
			return v, false, err
		}
		if err != nil || by != "" {
			v.by, v.timeout = by, timeout
			return v, true, err
		}
	}
	return v, true, nil
}

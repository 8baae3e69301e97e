// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	luaDriver = "redisdriver"
	luaDir    = luaDriver + "/lua"
)

// embedded is how the driver embeds its scripts; it is replaced, so that the tests read
// them from their working folder, and are built once for all mutants.
var embedded = regexp.MustCompile(`(?m)^//go:embed lua/\*\.lua\nvar sources embed\.FS$`)

const instead = `var _ embed.FS

var sources mutantFiles

type mutantFiles struct{}

func (mutantFiles) ReadFile(name string) ([]byte, error) { return mutantOS.ReadFile(name) }

func (mutantFiles) ReadDir(name string) ([]mutantOS.DirEntry, error) { return mutantOS.ReadDir(name) }
`

// luaKiller runs the driver's tests on mutated scripts.
type luaKiller struct {
	file   string            // the tests
	text   map[string][]byte // of every source of the scripts
	plain  string            // the folder of those without a mutant
	rounds []luaRound
}

// luaRound is one run of tests, and how long it takes without a mutant.
type luaRound struct {
	args []string
	took time.Duration
}

// lua judges the mutants of the sources of the Redis scripts. A mutant is built into
// every script; the comparison with the engine in memory and the tests judge it, whatever
// is quick first. A mutant that Redis does not compile does not count. The order is random, so
// that those of the first hour are a sample of all.
func lua(ctx context.Context, o options, r *report, wanted func(mutant) bool) error {
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
	if err := k.measure(ctx, dir, o.round); err != nil {
		return err
	}
	left := r.left("./"+luaDir, some)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	if o.again {
		if err := again(o.report, left); err != nil {
			return err
		}
	}
	return all(ctx, o.atOnce, left, func(m mutant) error {
		v, viable, err := k.judge(ctx, dir, mutants[m.key()], r.reasons[m.key()] != "")
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
	name := filepath.Join(top, luaDriver, "lua.go")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !embedded.Match(text) {
		return fmt.Errorf("%s does not embed the scripts as it did", name)
	}
	text = embedded.ReplaceAllLiteral(text, []byte(instead))
	text = bytes.Replace(text, []byte("import ("), []byte("import (\n\tmutantOS \"os\""), 1)
	put := filepath.Join(dir, "lua.go")
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

// scripts makes a folder with the sources of a mutant, and what is built of them in "built". It returns false if nothing can be.
func (k *luaKiller) scripts(ctx context.Context, dir string, m luaMutant) (string, bool, error) {
	work, err := os.MkdirTemp(dir, "scripts-")
	if err != nil {
		return "", false, err
	}
	err = errors.Join(os.Mkdir(filepath.Join(work, "lua"), 0o755), os.Mkdir(filepath.Join(work, "built"), 0o755))
	for name, text := range k.text {
		if name == m.file {
			text = []byte(m.text)
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(work, "lua", path.Base(name)), text, 0o600))
	}
	others, globErr := filepath.Glob(luaDriver + "/*.*")
	err = errors.Join(err, globErr)
	for _, name := range append(others, luaDriver+"/testdata") { // what else the tests read
		whole, absErr := filepath.Abs(name)
		err = errors.Join(err, absErr, os.Symlink(whole, filepath.Join(work, filepath.Base(name))))
	}
	if err != nil {
		return "", false, err
	}
	_, err = output(ctx, work, k.file, "-test.run=^TestScriptsAreBuilt$", "-built=built")
	return work, err == nil, ctx.Err()
}

// measure chooses the rounds, on scripts without a mutant: those that take longer than most
// are left out, unless it is 0.
func (k *luaKiller) measure(ctx context.Context, dir string, most time.Duration) error {
	work, ok, err := k.scripts(ctx, dir, luaMutant{})
	if err != nil || !ok {
		return fmt.Errorf("the scripts cannot be built: %w", err)
	}
	k.plain = work
	out, err := output(ctx, work, k.file, "-test.v", "-test.skip=Equal|Suite|^Fuzz", "-test.parallel=6")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	tests := finished(string(out))
	rounds := []luaRound{
		{args: []string{equalTest, "-equal=1"}},
		{args: []string{equalTest, "-equal=2"}},
		{args: []string{within(tests, -1, 300*time.Millisecond)}},
		{args: []string{equalTest, "-equal=3", "-part=7"}},
		{args: []string{within(tests, 300*time.Millisecond, 11*time.Second), "-test.parallel=16"}},
		{args: []string{"-test.run=Suite", "-test.skip=RESP2", "-test.parallel=16"}},
		{args: []string{equalTest, "-equal=3"}},
	}
	for _, r := range rounds {
		cut, cancel := context.WithTimeout(ctx, cmp.Or(most, time.Hour))
		start := time.Now()
		out, err := output(cut, work, k.file, r.args...)
		tooLong := cut.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && !tooLong {
			return fmt.Errorf("%w\n%s", err, out)
		}
		if r.took = time.Since(start); !tooLong {
			k.rounds = append(k.rounds, r)
		}
	}
	return nil
}

const equalTest = "-test.run=^TestScriptsEqualMemory$"

var passed = regexp.MustCompile(`(?m)^ *--- PASS: ([^/\s]+)(?:/\S+)? \((\d+\.\d+)s\)$`)

// finished returns the tests that passed, each with how long its longest part took.
func finished(out string) (tests []test) {
	at := map[string]int{}
	for _, m := range passed.FindAllStringSubmatch(out, -1) {
		if _, known := at[m[1]]; !known {
			at[m[1]] = len(tests)
			tests = append(tests, test{name: m[1]})
		}
		seconds, _ := strconv.ParseFloat(m[2], 64) // digits
		longest := &tests[at[m[1]]].took
		*longest = max(*longest, time.Duration(seconds*float64(time.Second)))
	}
	return tests
}

// within is the argument for the tests that took longer than least, and most at most.
func within(tests []test, least, most time.Duration) string {
	var names []string
	for _, t := range tests {
		if t.took > least && t.took <= most {
			names = append(names, t.name)
		}
	}
	return "-test.run=^(" + strings.Join(names, "|") + ")$"
}

// changed tells which variants of the comparison run a script that a mutant changed.
func (k *luaKiller) changed(work string) (variants string, err error) {
	names, err := filepath.Glob(filepath.Join(k.plain, "built", "*.lua"))
	node, plain := false, false
	for _, name := range names {
		was, oldErr := os.ReadFile(name)
		is, newErr := os.ReadFile(filepath.Join(work, "built", filepath.Base(name)))
		if err = errors.Join(err, oldErr, newErr); bytes.Equal(was, is) {
			continue
		}
		switch base := filepath.Base(name); {
		case strings.HasSuffix(base, "_node.lua"), base == "record.lua", base == "admit.lua":
			node = true
		case base == "inspect.lua":
			node, plain = true, true
		default:
			plain = true
		}
	}
	switch {
	case node && !plain:
		return "/node=true", err
	case plain && !node:
		return "/node=false", err
	}
	return "", err
}

// judge runs the rounds until a test fails; those that take long not for a mutant that is
// excused, that is, that has a reason to survive.
func (k *luaKiller) judge(ctx context.Context, dir string, m luaMutant, excused bool) (v verdict, viable bool, err error) {
	v.mutant = m.mutant
	work, ok, err := k.scripts(ctx, dir, m)
	if err != nil || !ok {
		return v, false, err
	}
	defer os.RemoveAll(work)
	variants, err := k.changed(work)
	if err != nil {
		return v, false, err
	}
	for _, r := range k.rounds {
		if excused && r.took > tooLong {
			break
		}
		b := &binary{dir: work, file: k.file, patience: 10*time.Second + 5*r.took}
		args := slices.Clone(r.args)
		if args[0] == equalTest {
			args[0] += variants
		}
		by, timeout, out, err := b.run(ctx, args, b.patience, 0)
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

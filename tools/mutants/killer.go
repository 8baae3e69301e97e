// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// binary is the tests of a package, built with the mutants.
type binary struct {
	pkg, dir, file string
	tests          []test        // the quickest first
	patience       time.Duration // how long a mutant may take at least
}

type test struct {
	name    string
	took    time.Duration
	cpu     time.Duration // of the processor
	reaches map[int]bool  // mutants
}

// measure runs each test by itself, with all mutants asleep, to see how long it takes and
// which mutants it reaches. Each subtest of a suite counts as a test, since few of them
// reach a mutant.
func (b *binary) measure(ctx context.Context, scratch string) error {
	out, err := b.command(ctx, "-test.list", "^(Test|Example|Fuzz)").Output()
	if err != nil {
		return fmt.Errorf("%s: listing the tests: %w", b.pkg, err)
	}
	names := strings.Fields(string(out))
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		t, subtests, err := b.one(ctx, name, filepath.Join(scratch, "reached"))
		if err != nil {
			return err
		}
		if t.took > time.Second && len(subtests) > 1 {
			names = append(subtests, names...)
			continue
		}
		b.tests = append(b.tests, t)
	}
	slices.SortStableFunc(b.tests, func(x, y test) int { return cmp.Compare(x.took, y.took) })
	return nil
}

// one runs a test, which must pass.
func (b *binary) one(ctx context.Context, name, file string) (test, []string, error) {
	defer func() { _ = os.Remove(file) }()
	cmd := b.command(ctx, "-test.run", pattern(name), "-test.v", "-test.timeout=5m")
	cmd.Env = append(cmd.Env, reachedVar+"="+file)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	t := test{name: name, took: time.Since(start), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), reaches: map[int]bool{}}
	if err != nil {
		return t, nil, fmt.Errorf("%s: %s fails without a mutant: %w\n%s", b.pkg, name, err, out)
	}
	ids, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return t, nil, err
	}
	for id := range strings.FieldsSeq(string(ids)) {
		n, err := strconv.Atoi(id)
		if err != nil {
			return t, nil, err
		}
		t.reaches[n] = true
	}
	return t, subtests(string(out), name), nil
}

// subtests returns the subtests of the first level that passed.
func subtests(out, name string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^ {4}--- PASS: (\S+)`).FindAllStringSubmatch(out, -1) {
		if path.Dir(m[1]) == name {
			names = append(names, m[1])
		}
	}
	return names
}

// pattern is the -test.run pattern for exactly these tests, all of one depth.
func pattern(names ...string) string {
	parts := strings.Split(names[0], "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	if len(names) > 1 {
		parts = []string{"^(" + strings.Join(names, "|") + ")$"} // names of functions
	}
	return strings.Join(parts, "/")
}

func (b *binary) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.file, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(b.file)) // killed processes leave files behind
	cmd.WaitDelay = time.Second                                    // for processes that a test left behind
	return cmd
}

// verdict is the result for a mutant.
type verdict struct {
	mutant
	by      string // the test that killed it, "" when it survived
	timeout bool   // it was killed by a timeout
	unmet   bool   // no test reaches it
}

// tooLong is what a test may take that judges a mutant of which a reason says that no test can tell.
const tooLong = 20 * time.Second

// judge runs the tests that reach a mutant until one fails, the quick ones first.
func judge(ctx context.Context, m mutant, excused bool, binaries []*binary) (verdict, error) {
	v := verdict{mutant: m, unmet: true}
	for _, b := range binaries {
		for _, batch := range batches(b.reaching(m.id)) {
			if v.unmet = false; excused && batch[0].took > tooLong {
				break
			}
			by, timeout, err := b.try(ctx, m.id, batch)
			if err != nil || by != "" {
				v.by, v.timeout = by, timeout
				return v, err
			}
		}
	}
	return v, nil
}

func (b *binary) reaching(id int) []test {
	var some []test
	for _, t := range b.tests {
		if t.reaches[id] {
			some = append(some, t)
		}
	}
	return some
}

// batches are the tests that run in one process: those of the first quarter of a second,
// those of the next two seconds, and then one by one. A subtest is by itself.
func batches(tests []test) [][]test {
	var all [][]test
	for _, limit := range []time.Duration{250 * time.Millisecond, 2 * time.Second} {
		var batch, rest []test
		for _, t := range tests {
			if t.took <= limit && !strings.Contains(t.name, "/") {
				limit -= t.took
				batch = append(batch, t)
			} else {
				rest = append(rest, t)
			}
		}
		if len(batch) > 0 {
			all = append(all, batch)
		}
		tests = rest
	}
	for _, t := range tests {
		all = append(all, []test{t})
	}
	return all
}

// try runs tests with a mutant awake, and returns the test that fails, if any. They may use five times as much of the
// processor as without, and two seconds; a test that waits for ever uses none, and has fifty times as long as it took.
func (b *binary) try(ctx context.Context, id int, tests []test) (by string, timeout bool, err error) {
	limit, cpu := 5*b.patience, 2*time.Second
	var names []string
	for _, t := range tests {
		limit += 50 * t.took
		cpu += 5 * t.cpu
		names = append(names, t.name)
	}
	args := []string{"-test.run", pattern(names...), "-test.v"}
	by, timeout, _, err = b.run(ctx, args, limit, int(math.Ceil(cpu.Seconds())), awakeVar+"="+strconv.Itoa(id))
	if by == unnamed {
		by = names[0]
	}
	return by, timeout, err
}

// unnamed is a failure before any test began.
const unnamed = "?"

// run runs tests until one fails, and returns its name and the output. Their own process may use so many seconds of the
// processor, which a busy machine does not make fewer; 0: any.
func (b *binary) run(ctx context.Context, args []string, limit time.Duration, cpu int, env ...string) (by string, timeout bool, out string, err error) {
	cut, cancel := context.WithTimeout(ctx, limit+b.patience)
	defer cancel()
	args = append(args, "-test.failfast", "-test.timeout", limit.String())
	// Some mutants never stop to allocate.
	cmd := b.command(cut, args...)
	bounds := "ulimit -v 4000000 2>/dev/null; "
	if cpu > 0 {
		bounds += fmt.Sprintf("ulimit -t %d; ", cpu)
	}
	cmd.Args = append([]string{"sh", "-c", bounds + `exec "$0" "$@"`, b.file}, args...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Env, env...)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err = cmd.Run()
	out = printed.String()
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return "", false, out, ctx.Err()
	case err == nil:
		return "", false, out, nil
	case cut.Err() != nil, strings.Contains(out, "panic: test timed out"):
		return cmp.Or(failed(out), unnamed), true, out, nil
	case !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		return "", false, out, err
	case cpu > 0 && exit != nil && exit.ExitCode() < 0: // the system killed it
		return cmp.Or(failed(out), unnamed), true, out, nil
	}
	return cmp.Or(failed(out), unnamed), false, out, nil
}

// failed returns the test that is reported as failed, or else the last that
// began.
func failed(out string) string {
	if m := regexp.MustCompile(`(?m)^--- FAIL: (\S+)`).FindStringSubmatch(out); m != nil {
		return m[1]
	}
	last := ""
	for _, m := range regexp.MustCompile(`(?m)^=== (?:RUN|CONT) +(\S+)`).FindAllStringSubmatch(out, -1) {
		last = m[1]
	}
	return last
}

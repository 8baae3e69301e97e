// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command benchcheck reports whether the working tree is slower than a commit. It
// runs the Go benchmarks of both, round by round, alternately, so that other load of
// the machine affects both alike, and compares them with benchstat:
//
//	benchcheck [flags] COMMIT
//
// It is run in the top folder of the checkout. The exit code is 1 if a benchmark is
// significantly slower, or allocates more, and 2 if that could not be determined.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// benchstat is pinned, so that verdicts do not change with its version.
const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

// threshold is how much worse a benchmark may get. benchstat takes care of noise: for
// one commit against itself, on a loaded machine with two processors, the medians of
// two benchmarks in thirteen were further apart than this, but none significantly. The
// threshold is for differences that are significant but do not matter.
const threshold = 15 // percent

type options struct {
	base   string
	rounds int
	bench  string
	time   time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "count", 20, "rounds, at least 6: with fewer hardly any difference is significant")
	flag.StringVar(&o.bench, "bench", ".", "only benchmarks that match this `pattern`")
	flag.DurationVar(&o.time, "benchtime", 300*time.Millisecond, "time for one benchmark in one round")
	flag.Parse()
	if flag.NArg() != 1 || flag.Arg(0) == "" || o.rounds < 6 {
		fmt.Fprintln(os.Stderr, "usage: benchcheck [flags] COMMIT")
		flag.PrintDefaults()
		os.Exit(2)
	}
	o.base = flag.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	worse, err := check(ctx, o)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "benchcheck: interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchcheck:", err)
		os.Exit(2)
	case len(worse) > 0:
		fmt.Printf("\nworse by more than %d %%:\n", threshold)
		for _, w := range worse {
			fmt.Println("  " + w.String())
		}
		os.Exit(1)
	}
	fmt.Printf("\nnothing is worse by more than %d %%\n", threshold)
}

// check compares the working tree with a commit.
func check(ctx context.Context, o options) (worse []change, err error) {
	top, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hasp-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // a server may run as somebody else
		return nil, err
	}
	remove, err := worktree(ctx, o.base, filepath.Join(dir, "base"))
	if err != nil {
		return nil, err
	}
	defer remove()

	base, err := prepare(ctx, filepath.Join(dir, "base"), filepath.Join(dir, "base.bin"))
	if err != nil {
		return nil, fmt.Errorf("the benchmarks of %s: %w", o.base, err)
	}
	head, err := prepare(ctx, top, filepath.Join(dir, "head.bin"))
	if err != nil {
		return nil, err
	}
	before, after := filepath.Join(dir, "base.txt"), filepath.Join(dir, "head.txt")
	if err := measure(ctx, o, side{base, before}, side{head, after}); err != nil {
		return nil, err
	}
	return compare(ctx, filepath.Join(top, ".bin"), o.base+"="+before, "here="+after)
}

// side is the benchmarks of one checkout, and the file of their results.
type side struct {
	packages []*benchmarks
	results  string
}

// measure runs the packages that have benchmarks on either side: in each round
// one package after another, on both sides in turn; the side that begins alternates.
func measure(ctx context.Context, o options, base, head side) error {
	var paths []string
	for _, p := range slices.Concat(base.packages, head.packages) {
		if !slices.Contains(paths, p.path) {
			paths = append(paths, p.path)
		}
	}
	sides := []side{base, head}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		for _, path := range paths {
			for _, s := range sides {
				i := slices.IndexFunc(s.packages, func(p *benchmarks) bool { return p.path == path })
				if i < 0 {
					continue
				}
				if err := s.packages[i].run(ctx, o, s.results); err != nil {
					return err
				}
			}
		}
		slices.Reverse(sides)
	}
	return nil
}

// compare prints benchstat's comparison of the results, and returns what got worse.
func compare(ctx context.Context, bin string, results ...string) ([]change, error) {
	tool, err := install(ctx, bin)
	if err != nil {
		return nil, err
	}
	text, err := output(exec.CommandContext(ctx, tool, results...))
	if err != nil {
		return nil, err
	}
	fmt.Printf("%s", text)
	table, err := output(exec.CommandContext(ctx, tool, append([]string{"-format", "csv"}, results...)...))
	if err != nil {
		return nil, err
	}
	changes, err := read(table)
	if err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return nil, errors.New("both sides have no benchmark in common: nothing was compared")
	}
	return slices.DeleteFunc(changes, func(c change) bool { return !c.worse() }), nil
}

// install builds the pinned benchstat, unless it is there.
func install(ctx context.Context, bin string) (tool string, err error) {
	tool = filepath.Join(bin, "benchstat")
	_, version, _ := strings.Cut(benchstat, "@")
	about, err := output(exec.CommandContext(ctx, "go", "version", "-m", tool))
	if err == nil && strings.Contains(string(about), version) {
		return tool, nil
	}
	get := exec.CommandContext(ctx, "go", "install", benchstat)
	get.Env = append(os.Environ(), "GOBIN="+bin)
	_, err = output(get)
	return tool, err
}

// output runs a command and returns its output. Its standard error becomes part of the
// error's text.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	text := ""
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // of Output, unwrapped
		text = "\n" + string(exit.Stderr)
	}
	return nil, fmt.Errorf("%s: %w%s", filepath.Base(cmd.Path), err, text)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command mutants reports whether the tests notice wrong conditions. It changes one
// condition at a time, and runs the tests that reach it until one fails: then the mutant
// is killed. No file of the checkout is changed. In the top folder:
//
//	mutants [flags] PACKAGE|FILE...
//
// The folder redisdriver/lua stands for the scripts that are built of it.
//
// A mutant that survives needs a reason in the list of survivors, which is in this folder.
// The exit code is 1 if one has none, or less than 95 % of those of whole packages were
// killed, and 2 if that could not be determined.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// killers are the packages with the tests of a package, if not only itself.
var killers = map[string][]string{
	".":                    {".", "./memdriver"}, // drivertest has cases of the core, too
	"./driver":             {"./driver", "./memdriver", "."},
	"./internal/keepalive": {"./internal/keepalive", "."},
	"./internal/gate":      {"./internal/gate", "."},
	"./internal/lifetime":  {"./internal/lifetime", "."},
}

type options struct {
	out       io.Writer
	atOnce    int
	limit     time.Duration
	survivors string
	report    string
	again     bool
	round     time.Duration
}

func main() {
	o := options{out: os.Stdout}
	flag.IntVar(&o.atOnce, "j", 2, "mutants at once")
	flag.DurationVar(&o.limit, "for", 0, "stop after this time, and report what was done; 0: never")
	flag.BoolVar(&o.again, "again", false, "keep what the last report says was killed, and judge the others")
	flag.DurationVar(&o.round, "round", 0, "of what judges the Redis scripts, leave out the tests that take longer; 0: none")
	flag.StringVar(&o.survivors, "survivors", "tools/mutants/survivors.txt", "the list of the mutants that may survive")
	flag.StringVar(&o.report, "report", ".bin/mutants.txt", "where to write the verdict on each mutant")
	flag.Parse()
	if flag.NArg() == 0 || o.atOnce < 1 {
		fmt.Fprintln(os.Stderr, "usage: mutants [flags] PACKAGE|FILE...")
		flag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	good, err := campaign(ctx, o, flag.Args())
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "mutants: interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	case !good:
		os.Exit(1)
	}
}

// campaign judges the mutants of packages and files, one package after another.
func campaign(ctx context.Context, o options, args []string) (good bool, err error) {
	f, err := os.Open(o.survivors)
	if err != nil {
		return false, err
	}
	reasons, err := readSurvivors(f)
	_ = f.Close()
	if err != nil {
		return false, fmt.Errorf("%s: %w", o.survivors, err)
	}
	if o.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.limit, errEnough)
		defer cancel()
	}
	r := newReport(o.out, reasons)
	r.whole = true
	if o.again {
		if r.before, err = killedBefore(o.report); err != nil {
			return false, err
		}
	}
	packages, files := targets(args)
	for _, p := range packages {
		r.whole = r.whole && files[p] == nil
		wanted := func(m mutant) bool { return files[p] == nil || slices.Contains(files[p], m.file) }
		if p == "./"+luaDir {
			err = lua(ctx, o, r, wanted)
		} else {
			err = one(ctx, o.atOnce, r, p, wanted)
		}
		if err != nil {
			break
		}
	}
	if errors.Is(context.Cause(ctx), errEnough) {
		fmt.Fprintf(o.out, "stopped after %v; -again goes on\n", o.limit)
		r.whole, err = false, nil
	}
	if err := errors.Join(err, r.save(o.report)); err != nil {
		return false, err
	}
	return r.print(), nil
}

var errEnough = errors.New("the time is over")

// targets returns the packages, in the order in which they are named; for some only files.
func targets(args []string) (packages []string, files map[string][]string) {
	files = map[string][]string{}
	for _, arg := range args {
		arg = filepath.ToSlash(filepath.Clean(arg))
		file := ""
		if strings.HasSuffix(arg, ".go") || strings.HasSuffix(arg, ".lua") {
			file, arg = arg, path.Dir(arg)
		}
		if arg != "." {
			arg = "./" + arg
		}
		all := slices.Contains(packages, arg) && files[arg] == nil
		if !slices.Contains(packages, arg) {
			packages = append(packages, arg)
		}
		if file == "" {
			delete(files, arg)
		} else if !all {
			files[arg] = append(files[arg], file)
		}
	}
	return packages, files
}

// one judges those mutants of a package that are wanted.
func one(ctx context.Context, atOnce int, r *report, pkg string, wanted func(mutant) bool) error {
	top, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hasp-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	by := killers[pkg]
	if by == nil {
		by = []string{pkg}
	}
	mutants, binaries, err := build(ctx, top, dir, pkg, by)
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !wanted(m) })
	r.expect(mutants)
	for _, b := range binaries {
		if err := b.measure(ctx, dir); err != nil {
			return err
		}
	}
	return all(ctx, atOnce, r.left(pkg, mutants), func(m mutant) error {
		v, err := judge(ctx, m, r.reasons[m.key()] != "", binaries)
		if err == nil {
			r.add(pkg, v)
		}
		return err
	})
}

// all calls judge for each mutant, a few at once, until one fails.
func all(ctx context.Context, atOnce int, mutants []mutant, judge func(mutant) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	todo := make(chan mutant)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for m := range todo {
				if err := judge(m); err != nil {
					stop(err)
				}
			}
		})
	}
	for _, m := range mutants {
		select {
		case todo <- m:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(todo)
	workers.Wait()
	return context.Cause(ctx)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench compares hasp with the locks that people use today, on the same
// servers, which it starts on free loopback ports and stops again.
//
//	go run ./bench                          # everything, about 40 minutes
//	go run ./bench -quick                   # a trial of everything
//	go run ./bench -scenarios s2 -peers hasp,redsync -rounds 9
//
// The rounds of the peers are interleaved, so that a machine that gets slower for a
// while is slow for all of them: compare ratios, and medians. The exit code is 1 if a
// round failed, for example because a lock did not exclude.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9/logging"
)

// options are the settings from the command line.
type options struct {
	quick     bool
	rounds    int
	out       string
	scenarios []*scenario
	peers     []*peer
}

func main() {
	player.Main(childEnv, runChild)
	logging.Disable()
	testserver.Main("bench", run)
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if err := checkLimits(); err != nil {
		return err
	}
	r, err := testserver.Perform(ctx, func(t *testserver.Program) *results {
		return measure(ctx, newEnv(t, o.quick), o)
	})
	if err != nil {
		return err
	}
	r.printBars(os.Stdout)
	if o.out != "" {
		if err := r.save(o.out); err != nil {
			return err
		}
	}
	if len(r.Failures) > 0 {
		return fmt.Errorf("%d rounds FAILED:\n  %s", len(r.Failures), strings.Join(r.Failures, "\n  "))
	}
	return nil
}

func parse(args []string) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "shorter, with one round: to see that it works, not how fast it is")
	rounds := flags.Int("rounds", 0, "how often each peer is measured (default 5, quick 1)")
	out := flags.String("out", "", "the `folder` that gets performance.md and results/benchmarks.md, with its figures and pictures")
	which := flags.String("scenarios", "", "the scenarios, such as s1,s2 (default all)")
	whose := flags.String("peers", "", "the peers, by name or first word, such as hasp,redsync (default all)")
	if err := flags.Parse(args); err != nil {
		return options{}, flag.ErrHelp
	}
	if flags.NArg() > 0 || *rounds < 0 {
		flags.Usage()
		return options{}, flag.ErrHelp
	}
	o := options{quick: *quick, rounds: *rounds, out: *out}
	if _, err := os.Stat(filepath.Join(*out, "results", "benchmarks.json")); err == nil && *which+*whose != "" {
		return o, fmt.Errorf("%s has the results of a run, which those of some scenarios or peers would replace: name another folder", *out)
	}
	var err error
	if o.scenarios, err = choose("scenario", *which, scenarios, func(s *scenario) string { return s.name }); err != nil {
		return o, err
	}
	o.peers, err = choose("peer", *whose, peers, func(p *peer) string { return p.name })
	return o, err
}

// choose returns the elements of all that a comma-separated list names, in full or by the
// first word of the name; with an empty list, all.
func choose[T any](what, list string, all []T, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	named := map[string]bool{}
	for _, x := range all {
		named[name(x)], named[family(name(x))] = true, true
	}
	wanted := map[string]bool{}
	for w := range strings.SplitSeq(list, ",") {
		if w = strings.TrimSpace(w); !named[w] {
			return nil, fmt.Errorf("no %s is called %q", what, w)
		}
		wanted[w] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !wanted[name(x)] && !wanted[family(name(x))] }), nil
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Command show measures what takes minutes, on real servers that it starts on free
// loopback ports and stops again.
//
//	go run ./verify/show waiters -engine redis
//	go run ./verify/show overlap -only redsync -n 20
//
// Its exit code is 1 when a bar was missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9/logging"
)

// show is one measurement. prepare defines its flags and returns it.
type show struct {
	name, about string
	prepare     func(*flag.FlagSet) func(*testserver.Program)
}

var shows = []show{
	{"costs", "what each engine promises, and costs without contention and from one client to the next", costs},
	{"waiters", "many waiters for one key over a slow link or beside busy loops, on every engine", waiters},
}

func main() {
	logging.Disable() // what matters comes back as an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "show: interrupted")
		os.Exit(130)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(64)
	case err != nil:
		fmt.Fprintln(os.Stderr, "show:", err)
		os.Exit(1)
	}
}

// run runs the show that the command line names. A bar that was missed is an error.
func run(ctx context.Context, args []string) error {
	for _, s := range shows {
		if len(args) == 0 || args[0] != s.name {
			continue
		}
		flags := flag.NewFlagSet(s.name, flag.ContinueOnError)
		f := s.prepare(flags)
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		_, err := testserver.Perform(ctx, func(t *testserver.Program) any { f(t); return nil })
		return err
	}
	fmt.Fprintln(os.Stderr, "usage: show NAME [flags], where NAME is one of:")
	for _, s := range shows {
		fmt.Fprintf(os.Stderr, "\n  %-9s %s\n", s.name, s.about)
		flags := flag.NewFlagSet(s.name, flag.ContinueOnError)
		s.prepare(flags)
		flags.PrintDefaults()
	}
	return flag.ErrHelp
}

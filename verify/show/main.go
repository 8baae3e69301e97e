// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Command show measures what takes minutes, on real servers that it starts on free
// loopback ports and stops again.
//
//	go run ./verify/show waiters -engine redis
//	go run ./verify/show overlap -only redsync -n 20
//
// It ends with a table of its bars, and with exit code 1 when a bar was missed.
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

// row is one line of the table.
type row struct {
	what, bar, got string
	missed         bool
}

// show is one measurement. prepare defines its flags and returns it.
type show struct {
	name, about string
	prepare     func(*flag.FlagSet) func(*testserver.Program) []row
}

var shows = []show{
	{"costs", "what each engine promises, and costs without contention and from one client to the next", costs},
	{"waiters", "many waiters for one key over a slow link or beside busy loops, on every engine", waiters},
}

func main() {
	logging.Disable() // what matters comes back as an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	missed, err := run(ctx, os.Args[1:])
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
	case missed:
		os.Exit(1)
	}
}

// run runs the show that the command line names, and reports whether a bar was missed.
func run(ctx context.Context, args []string) (missed bool, err error) {
	for _, s := range shows {
		if len(args) == 0 || args[0] != s.name {
			continue
		}
		flags := flag.NewFlagSet(s.name, flag.ContinueOnError)
		f := s.prepare(flags)
		if err := flags.Parse(args[1:]); err != nil {
			return false, err
		}
		rows, err := testserver.Perform(ctx, f)
		return table(rows), err
	}
	fmt.Fprintln(os.Stderr, "usage: show NAME [flags], where NAME is one of:")
	for _, s := range shows {
		fmt.Fprintf(os.Stderr, "\n  %-9s %s\n", s.name, s.about)
		flags := flag.NewFlagSet(s.name, flag.ContinueOnError)
		s.prepare(flags)
		flags.PrintDefaults()
	}
	return false, flag.ErrHelp
}

// table prints the results, and reports whether a bar was missed.
func table(rows []row) (missed bool) {
	if len(rows) > 0 {
		fmt.Println("\n| what | bar | figure | |\n|---|---|---|---|")
	}
	for _, r := range rows {
		verdict := "ok"
		if r.missed {
			verdict, missed = "MISSED", true
		}
		fmt.Printf("| %s | %s | %s | %s |\n", r.what, r.bar, r.got, verdict)
	}
	return missed
}

// judged is a row with a bar that was met or not.
func judged(met bool, what, bar, format string, args ...any) row {
	return row{what: what, bar: bar, got: fmt.Sprintf(format, args...), missed: !met}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command overlap measures for how long two clients believe that they hold one key, when the first holder
// is cut off or stopped, or the clock of the servers is stepped: of hasp on every engine, and of the
// locks that people use today. Clients are processes of their own, all instants are of the machine's one
// monotonic clock, and the servers are started on free loopback ports and stopped again.
//
//	go run ./verify/overlap                       five runs of everything
//	go run ./verify/overlap -only redsync -n 20   locks whose name contains it
//
// The exit code is 1 when a run failed, or hasp overlapped where it must not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/internal/page"
)

// ttl is every lock's TTL, and ZooKeeper's session time-out.
const ttl = 3 * time.Second

// watch is for how long a first holder is watched from the second grant on.
const watch = 10 * time.Second

func main() {
	clientMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := perform(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "overlap:", err)
		os.Exit(1)
	}
}

func perform(ctx context.Context) error {
	n := flag.Int("n", 5, "how often each lock is measured under each fault")
	side := flag.Int("parallel", 6, "how many runs go on at once")
	only := flag.String("only", "", "the locks whose name contains this `text`")
	into := flag.String("into", "", "write the table into this `file`, between the marks that are there")
	flag.Parse()
	if err := testserver.CanStepClocks(); err != nil {
		return err
	}
	var chosen []*subject
	for _, s := range subjects {
		if strings.Contains(s.name, *only) {
			chosen = append(chosen, s)
		}
	}
	begun := time.Now()
	all := newResults(chosen)
	err := all.measure(ctx, *n, *side)
	text := fmt.Sprintf("%s\n\n%s", heading(*n, *side, time.Since(begun)), all.table())
	fmt.Print(text)
	if *into != "" && ctx.Err() == nil {
		err = errors.Join(err, page.Write(*into, "overlap", text))
	}
	return errors.Join(err, all.verdict())
}

// measure does n runs of each subject under each fault, in turn, so that a machine that is slow for a
// while is slow for all of them.
func (a *results) measure(ctx context.Context, n, side int) error {
	var mu sync.Mutex
	var errs []error
	var running sync.WaitGroup
	places := make(chan struct{}, side)
	for i := range n {
		for _, f := range faults {
			for _, s := range a.subjects {
				if !s.has(f) {
					continue
				}
				places <- struct{}{}
				running.Go(func() {
					defer func() { <-places }()
					r := &run{subject: s, fault: f, ttl: ttl, after: moment(i, n), watch: watch}
					out, err := r.perform(ctx)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						errs = append(errs, fmt.Errorf("%s, %s: %w", s.name, f, err))
						return
					}
					a.add(s, f, out)
					fmt.Fprintf(os.Stderr, "%s, %s: %+v\n", s.name, f, out)
				})
			}
		}
	}
	running.Wait()
	return errors.Join(errs...)
}

// moment is when the fault comes: after a renewal or two, and over the runs everywhere between two.
func moment(i, n int) time.Duration { return ttl/2 + ttl*time.Duration(i)/time.Duration(n) }

// perform is measure for a program.
func (r *run) perform(ctx context.Context) (outcome, error) {
	var failed error
	out, err := testserver.Perform(ctx, func(t *testserver.Program) (out outcome) {
		out, failed = r.measure(t)
		return out
	})
	if err != nil {
		return out, err // it may still be running, and set failed
	}
	return out, failed
}

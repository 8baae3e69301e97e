// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Program lets a program use the servers and links that were written for
// tests. Perform makes one. Its methods may be called by any number of
// goroutines at once; Fatalf and Must end the calling goroutine.
type Program struct {
	testing.TB // nil: what is not defined below is not used
	ctx        context.Context

	mu       sync.Mutex
	cleanups []func()
	errs     []error
}

// Main is a program's main function: run with the arguments, until a signal interrupts it, and the exit code of what came of it.
// run returns flag.ErrHelp once it has said how the program is used.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintf(os.Stderr, "%s: interrupted\n", name)
		os.Exit(130)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(64)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Perform runs f, and ends what it started, also when ctx ends: then f is left
// behind, the result is the zero value, and the program should end soon. The
// error joins what f reported.
func Perform[T any](ctx context.Context, f func(*Program) T) (T, error) {
	p := &Program{ctx: ctx}
	var got, none T
	ended := make(chan struct{})
	go func() { // Fatalf ends the goroutine
		defer close(ended)
		got = f(p)
	}()
	select {
	case <-ended:
		p.cleanup()
		return got, p.Err()
	case <-ctx.Done():
		p.cleanup()
		return none, context.Cause(ctx)
	}
}

func (p *Program) cleanup() {
	for {
		p.mu.Lock()
		n := len(p.cleanups)
		if n == 0 {
			p.mu.Unlock()
			return
		}
		f := p.cleanups[n-1]
		p.cleanups = p.cleanups[:n-1]
		p.mu.Unlock()
		f()
	}
}

// Err returns what was reported so far.
func (p *Program) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

// Must ends f when err is not nil.
func (p *Program) Must(err error) {
	if err != nil {
		p.Fatalf("%w", err)
	}
}

// Helper does nothing.
func (p *Program) Helper() {}

// Context returns the context that Perform was given.
func (p *Program) Context() context.Context { return p.ctx }

// Failed says whether an error was reported.
func (p *Program) Failed() bool { return p.Err() != nil }

// Cleanup has f called when Perform ends, the last one first.
func (p *Program) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// Logf writes a line on standard error.
func (p *Program) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "   "+strings.TrimSpace(format)+"\n", args...)
}

// Errorf reports an error; the format is that of fmt.Errorf.
func (p *Program) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// Fatalf reports an error and ends the goroutine.
func (p *Program) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf is Fatalf: a program was asked to do it.
func (p *Program) Skipf(format string, args ...any) { p.Fatalf(format, args...) }

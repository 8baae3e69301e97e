// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// tb lets a program use the servers and links that were written for tests.
type tb struct {
	testing.TB // nil: what is not defined below is not used
	ctx        context.Context

	mu       sync.Mutex
	cleanups []func()
	errs     []error
}

// perform runs f, and ends what it started, also when it is interrupted.
func perform[T any](ctx context.Context, f func(*tb) T) (T, error) {
	t := &tb{ctx: ctx}
	var got, none T
	ended := make(chan struct{})
	go func() { // Fatalf ends the goroutine
		defer close(ended)
		got = f(t)
	}()
	select {
	case <-ended:
		t.cleanup()
		return got, t.err()
	case <-ctx.Done(): // f is left behind: the program ends soon
		t.cleanup()
		return none, context.Cause(ctx)
	}
}

func (t *tb) cleanup() {
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			return
		}
		f := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		f()
	}
}

func (t *tb) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.errs...)
}

func (t *tb) Helper() {}

func (t *tb) Context() context.Context { return t.ctx }

func (t *tb) Failed() bool { return t.err() != nil }

func (t *tb) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *tb) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "   "+strings.TrimSpace(format)+"\n", args...)
}

func (t *tb) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errs = append(t.errs, fmt.Errorf(format, args...))
}

func (t *tb) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *tb) Skipf(format string, args ...any) { t.Fatalf(format, args...) }

// must ends the show when err is not nil.
func (t *tb) must(err error) {
	if err != nil {
		t.Fatalf("%w", err)
	}
}

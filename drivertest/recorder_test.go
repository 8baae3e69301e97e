// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/drivertest"
)

// recorder stands in for a test that is expected to fail.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Log(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.WriteString(fmt.Sprintln(args...))
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) FailNow()                       { r.Fail(); runtime.Goexit() }
func (r *recorder) Logf(format string, a ...any)   { r.Log(fmt.Sprintf(format, a...)) }
func (r *recorder) Error(a ...any)                 { r.Log(a...); r.Fail() }
func (r *recorder) Errorf(format string, a ...any) { r.Logf(format, a...); r.Fail() }
func (r *recorder) Fatal(a ...any)                 { r.Log(a...); r.FailNow() }
func (r *recorder) Fatalf(format string, a ...any) { r.Logf(format, a...); r.FailNow() }
func (r *recorder) Skip(a ...any)                  { r.Log(a...); r.SkipNow() }
func (r *recorder) Skipf(format string, a ...any)  { r.Logf(format, a...); r.SkipNow() }

// record runs one case under a fake clock.
func record(t *testing.T, c drivertest.Case, h drivertest.Harness) *recorder {
	h.Fake = true
	var r *recorder
	synctest.Test(t, func(t *testing.T) {
		r = &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer r.cleanUp()
			c.Run(r, h)
		}()
		<-done
		time.Sleep(2 * time.Hour) // whatever a broken engine left has ended
	})
	return r
}

func (r *recorder) cleanUp() {
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		f()
	}
}

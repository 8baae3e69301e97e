// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Clock is a wall clock for servers, which can be stepped; their monotonic clock is the machine's.
// It does not reach programs that ask the kernel and not the C library, as those in Go do.
type Clock struct {
	t    testing.TB
	file string // what libfaketime reads at each look at the clock
	lib  string
}

// newClock makes a clock in a folder of its own.
func newClock() (*Clock, error) {
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1") // where Debian puts it for its architecture
	if err == nil && len(found) == 0 {
		err = errors.New("libfaketime is not installed (apt-get install faketime)")
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hasp-clock-")
	if err != nil {
		return nil, err
	}
	c := &Clock{file: filepath.Join(dir, "offset"), lib: found[0]}
	return c, errors.Join(os.Chmod(dir, 0o755), c.step(0)) // a server may run as another user
}

func (c *Clock) remove() { _ = os.RemoveAll(filepath.Dir(c.file)) }

// CanStepClocks returns nil if there can be a Clock, or says what is missing.
func CanStepClocks() error { return canStepClocks() }

// canStepClocks starts a program of Redis under the library: one with a C library of its own cannot have it.
var canStepClocks = sync.OnceValue(func() error {
	c, err := newClock()
	if err != nil {
		return err
	}
	defer c.remove()
	cmd := exec.Command(binaries["redis"], "--version")
	cmd.Env = append(os.Environ(), c.Env()...)
	if out, err := cmd.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s does not run under %s: %w: %s", binaries["redis"], c.lib, err, out)
	}
	return nil
})

// NewClock makes a clock that is right. It skips the test where CanStepClocks is not nil.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	Variant(t, "clocks that are stepped")
	if err := CanStepClocks(); err != nil {
		t.Skipf("SKIPPED WITHOUT LIBFAKETIME: this test of a server's clock did not run: %v", err)
	}
	c, err := newClock()
	must(t, err)
	t.Cleanup(c.remove)
	c.t = t
	return c
}

// Step sets how far the clock is ahead, for all servers that have it.
func (c *Clock) Step(ahead time.Duration) {
	c.t.Helper()
	must(c.t, c.step(ahead))
}

func (c *Clock) step(ahead time.Duration) error {
	next := c.file + ".new"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+f\n", ahead.Seconds()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.file) // atomic for concurrent readers
}

// Env is what a server needs in its environment to have this clock: see RedisIn.
func (c *Clock) Env() []string {
	// Debian's redis-server has jemalloc, in which libfaketime would call
	// itself: the C library's own allocator must come first.
	libc := filepath.Join(filepath.Dir(filepath.Dir(c.lib)), "libc.so.6")
	// The fix is for old C libraries; with this one it makes Java wait for nothing.
	return []string{
		"FAKETIME_FORCE_MONOTONIC_FIX=0", "LD_PRELOAD=" + c.lib + ":" + libc,
		"FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// forgetClock removes what libfaketime leaves behind of a process that has ended; most
// processes had no clock.
func forgetClock(pid int) {
	for _, file := range []string{"faketime_shm_", "sem.faketime_sem_"} {
		_ = os.Remove(filepath.Join("/dev/shm", file+strconv.Itoa(pid)))
	}
}

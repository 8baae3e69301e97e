// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package testserver

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// FullPipe returns the end to write to of a pipe that is full, and is not
// read until the test ends: every write to it blocks.
func FullPipe(t testing.TB) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	fd := int(w.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = syscall.Write(fd, make([]byte, n))
		}
		if !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return w
}

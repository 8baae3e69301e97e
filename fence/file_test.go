// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

type file string

func (f file) write(fence uint64) error {
	return WriteFile(string(f), fmt.Appendf(nil, "of %d", fence), 0o640, fence)
}
func (f file) read(fence uint64) error { _, err := ReadFile(string(f), fence); return err }

func TestFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	if err := file(name).read(1); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	testGuard(t, file(name))
	data, err := ReadFile(name, 1<<63-1)
	if err != nil || string(data) != "of 9223372036854775807" {
		t.Errorf("%q, %v", data, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	lonely(t, name)
}

// lonely fails if anything but the file and its fence is left.
func lonely(t *testing.T, name string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Dir(name))
	if err != nil || len(left) > 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Whoever writes last has the largest fence, however many write at once.
func TestFileWritersAtOnce(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for n := range 10 {
				if err := file(name).write(uint64(1 + (i*7+n*13)%400)); err != nil && !errors.Is(err, ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	side, err := os.ReadFile(name + ".fence")
	must(t, err)
	data, err := os.ReadFile(name)
	if want := "of " + strings.TrimLeft(strings.TrimSpace(string(side)), "0"); err != nil || string(data) != want {
		t.Errorf("the file is %q, and its fence %q: %v", data, side, err)
	}
	lonely(t, name)
}

// When the file cannot be replaced its fence counts already, since the other way round a crash
// would let in a smaller one; nothing is left beside it.
func TestFileThatCannotBeReplaced(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	must(t, os.Mkdir(name, 0o700))
	if err := file(name).write(7); err == nil || errors.Is(err, ErrStale) {
		t.Error(err)
	}
	if err := file(name).write(6); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	lonely(t, name)
}

// What is no fence is an error, never a small one.
func TestFileOfABrokenFence(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "7\n", strings.Repeat("0", 19) + "x\n", strings.Repeat("0", 19) + "7", strings.Repeat("0", 20) + "7\n", "\n", strings.Repeat("0", 19) + "77"} {
		name := filepath.Join(t.TempDir(), "f")
		must(t, os.WriteFile(name+".fence", []byte(text), 0o600))
		if err := file(name).write(9); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("%q: %v", text, err)
		}
		if err := file(name).read(9); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

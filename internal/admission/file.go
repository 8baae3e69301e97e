// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hasplock/hasp/internal/clock"
)

// files keep the waits of short-lived processes, which complete them together: one
// file for each record, written once. They use the clock that counts from the
// machine's boot and cannot be set.
type files struct {
	dir  string
	boot string // names the boot that the times belong to
}

// maxAge is how long a file is kept. A wait takes minutes.
const maxAge = 7 * 24 * time.Hour

func newFiles(dir string) (*files, error) {
	boot := clock.BootID()
	switch {
	case dir == "":
		return nil, errors.New("no directory was named for it")
	case boot == "" || clock.System().Boot == 0:
		return nil, errors.New("this system has no clock that counts from its boot")
	}
	return &files{dir: filepath.Join(dir, "waits"), boot: boot}, nil
}

// Check says why waits cannot be kept in a directory; nil: they can.
func Check(dir string) error {
	f, err := newFiles(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(f.dir, fmt.Sprintf(".check-%d", os.Getpid()))
	return errors.Join(f.write(path, f.boot+"\n"), os.Remove(path))
}

// age returns how long ago a record was first seen on this machine since it was
// booted, and notes it in the directory when it never was.
func age(dir, record string) (time.Duration, error) {
	f, err := newFiles(dir)
	if err != nil {
		return 0, err
	}
	now := clock.System().Boot
	sum := sha256.Sum256([]byte(record)) // a name, not a safeguard
	path := filepath.Join(f.dir, hex.EncodeToString(sum[:16]))
	if first, ok := f.read(path); ok && first <= now {
		return now - first, nil
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return 0, err
	}
	f.sweep()
	return 0, f.write(path, fmt.Sprintf("%s %d\n", f.boot, int64(now)))
}

// read returns the time in a file of this boot. It is not ok for a file that is
// missing, damaged or of another boot.
func (f *files) read(path string) (first time.Duration, ok bool) {
	file, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 200))
	var boot string
	var ns int64
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%s %d\n", &boot, &ns)
	}
	return time.Duration(ns), err == nil && boot == f.boot
}

// write makes a file as a whole. Of several that do at once the last one wins:
// their times differ by as much as they took, in the safe direction.
func (f *files) write(path, text string) error {
	tmp, err := os.CreateTemp(f.dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(text)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // what failed is reported
	}
	return err
}

// sweep removes files that are no longer needed.
func (f *files) sweep() {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > maxAge {
			_ = os.Remove(filepath.Join(f.dir, e.Name())) // another process may have
		}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
)

const (
	// lookEvery is how often files are looked at, at most, whether they have changed.
	lookEvery = 2 * time.Second
	// settled is how old a change has to be: the writer of a certificate may not have
	// written its key yet.
	settled = 2 * time.Second
)

// reread is what some files say. It is read again when they change, so that renewing
// a certificate or revoking a token needs no restart. It is safe for concurrent use.
type reread[T any] struct {
	what  string // the flags and the files, for people
	paths []string
	read  func() (T, error) // an error names the file

	value atomic.Pointer[T]
	mu    sync.Mutex    // held by the goroutine that looks
	next  time.Time     // before it no goroutine looks
	seen  []os.FileInfo // before the latest reading, failed or not; nil for a file that is missing
}

// newReread reads the files for the first time.
func newReread[T any](what string, read func() (T, error), paths ...string) (*reread[T], error) {
	r := &reread[T]{what: what, paths: paths, read: read}
	return r, r.load(stats(paths))
}

// get returns what the files say. Those that have changed are read again, unless they
// were looked at just now.
func (r *reread[T]) get() T {
	if r.mu.TryLock() { // the others do not wait for a slow disk
		if now := time.Now(); len(r.paths) > 0 && !now.Before(r.next) {
			r.next = now.Add(lookEvery)
			if infos := stats(r.paths); !slices.EqualFunc(infos, r.seen, sameFile) && !slices.ContainsFunc(infos, func(i os.FileInfo) bool { return fresh(i, now) }) {
				r.tell(r.load(infos))
			}
		}
		r.mu.Unlock()
	}
	return *r.value.Load()
}

// again reads the files, whether they seem to have changed or not.
func (r *reread[T]) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell(r.load(stats(r.paths)))
}

// load reads the files, with mu locked. With an error the value stays as it was.
func (r *reread[T]) load(infos []os.FileInfo) error {
	r.seen = infos // as they were before: what changes meanwhile is noticed by the next look
	value, err := r.read()
	if err == nil {
		r.value.Store(&value)
	}
	return err
}

func (r *reread[T]) tell(err error) {
	if err != nil {
		base.Note("warning: %v. What was read before stays in force; when that is mended, it is read again", err)
		return
	}
	base.Note("read again: %s", r.what)
}

// stats returns what is known of files; nil for a file that is missing.
func stats(paths []string) []os.FileInfo {
	infos := make([]os.FileInfo, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil { // reading it says what is wrong
			infos[i] = info
		}
	}
	return infos
}

func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// fresh says whether a program may still be writing. A time in the future says nothing.
func fresh(i os.FileInfo, now time.Time) bool {
	if i == nil {
		return false
	}
	age := now.Sub(i.ModTime())
	return age >= 0 && age < settled
}

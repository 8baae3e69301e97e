// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// Files are read again when they have changed and nobody writes them any more; one that
// is wrong is read once, and changes nothing.
func TestReread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write := func(text string, age time.Duration) {
			t.Helper()
			must(t, os.WriteFile(path, []byte(text), 0o600))
			then := time.Now().Add(-age)
			must(t, os.Chtimes(path, then, then))
		}
		reads := 0
		write("one", time.Hour)
		r, err := newReread("--file "+path, func() (string, error) {
			reads++
			b, err := os.ReadFile(path)
			if string(b) == "wrong" {
				err = errors.New(path + " is wrong")
			}
			return string(b), err
		}, path)
		must(t, err)
		want := func(what, text string, n int) {
			t.Helper()
			if got := r.get(); got != text || reads != n {
				t.Errorf("%s: %q after %d readings, want %q after %d", what, got, reads, text, n)
			}
		}
		want("at first", "one", 1)
		write("two", time.Minute)
		want("looked at just now", "one", 1)
		time.Sleep(lookEvery)
		want("changed", "two", 2)
		time.Sleep(lookEvery)
		want("unchanged", "two", 2)
		time.Sleep(lookEvery)
		write("three", settled-time.Millisecond)
		want("still written", "two", 2)
		time.Sleep(lookEvery)
		want("written", "three", 3)
		write("wrong", time.Hour)
		for range 3 {
			time.Sleep(lookEvery)
			want("wrong", "three", 4)
		}
		must(t, os.Remove(path))
		for range 3 {
			time.Sleep(lookEvery)
			want("missing", "three", 5)
		}
		write("four", -time.Hour) // a clock that is ahead
		time.Sleep(lookEvery)
		want("mended", "four", 6)
		r.again()
		want("asked to", "four", 7)
		other := path + ".new"
		info, err := os.Stat(path)
		must(t, err)
		must(t, errors.Join(os.WriteFile(other, []byte("five"), 0o600), os.Chtimes(other, info.ModTime(), info.ModTime()), os.Rename(other, path)))
		time.Sleep(lookEvery)
		want("another file of the same size and time", "five", 8)
	})
}

// A file that is wrong at the start is an error.
func TestRereadAtStart(t *testing.T) {
	if _, err := newReread("x", func() (int, error) { return 0, os.ErrInvalid }, "none"); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/internal/clock"
)

func TestWait(t *testing.T) {
	const maxTTL = 30 * time.Second
	if got, least := Wait(maxTTL), maxTTL+10*time.Second; got <= least || got > least+time.Second {
		t.Errorf("the wait for leases of %v is %v, want a little more than %v", maxTTL, got, least)
	}
	for left, want := range map[time.Duration]string{0: "flushed)", time.Millisecond: "flushed), 1s left", 37400 * time.Millisecond: "flushed), 37s left"} {
		if text := (&HeldBack{left}).Error(); !strings.HasSuffix(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

func TestWaitBelongsToOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New("", nil)
		all := Wait(time.Minute)
		if left := w.Left("a", time.Minute); left != all {
			t.Errorf("%v are left of a wait that begins, want %v", left, all)
		}
		time.Sleep(all - time.Second)
		if left := w.Left("a", time.Minute); left != time.Second {
			t.Errorf("%v are left, want 1s", left)
		}
		if left := w.Left("b", time.Minute); left != all {
			t.Errorf("%v are left for another record, want %v", left, all)
		}
		if left := w.Left("a", 2*time.Minute); left < time.Minute {
			t.Errorf("%v are left for longer leases", left)
		}
		w.Over("a")
		if left := w.Left("a", time.Minute); left != all {
			t.Errorf("%v are left of a record that was over, want %v", left, all)
		}
	})
}

func TestProcessesShareTheirWaits(t *testing.T) {
	if clock.BootID() == "" || clock.System().Boot == 0 {
		t.Skip("this system has no clock that counts from its boot: each process waits for itself")
	}
	dir := t.TempDir()
	failed := func(err error) { t.Error(err) }
	first := New(dir, failed).Left("a", time.Minute)
	second := New(dir, failed).Left("a", time.Minute)
	if second >= first {
		t.Errorf("%v are left, and for the next process %v", first, second)
	}
	names, err := filepath.Glob(filepath.Join(dir, "waits", "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("the files are %v, %v", names, err)
	}
	for what, text := range map[string]string{
		"damaged":                 "\x00",
		"of another boot":         "other 1\n",
		"of a time that is to be": clock.BootID() + " 9000000000000000000\n",
	} {
		if err := os.WriteFile(names[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if left := New(dir, failed).Left("a", time.Minute); left != Wait(time.Minute) {
			t.Errorf("%v are left by a file that is %s, want the whole wait", left, what)
		}
	}
}

// Where a wait cannot be kept, each process waits for itself, and that is said once, with the directory.
func TestWaitIsNotKept(t *testing.T) {
	if clock.BootID() == "" || clock.System().Boot == 0 {
		t.Skip("this system has no clock that counts from its boot: each process waits for itself")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{file: file, filepath.Join(file, "below"): file, "": "no directory"} {
		var told []error
		w := New(dir, func(err error) { told = append(told, err) })
		for _, record := range []string{"a", "b", "a"} {
			if left := w.Left(record, time.Minute); left > Wait(time.Minute) || left <= 0 {
				t.Errorf("%q: %v are left", dir, left)
			}
		}
		if len(told) != 1 || !strings.Contains(told[0].Error(), want) {
			t.Errorf("%q: told was %v", dir, told)
		}
		if err := Check(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: Check says %v", dir, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := Check(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "waits")); err != nil || len(left) > 0 {
		t.Errorf("Check left %v, %v", left, err)
	}
}

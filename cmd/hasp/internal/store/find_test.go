// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A password where others can read it is worth a warning.
func TestWarnings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "store")
	t.Setenv(EnvFile, file)
	for _, c := range []struct {
		url  string
		mode os.FileMode
		want string
	}{
		{"redis://:hunter2@h", 0o600, ""},
		{"redis://:hunter2@h", 0o640, "others can read it: chmod 600"},
		{"redis://:hunter2@h", 0o604, "others can read it: chmod 600"},
		{"redis://h", 0o644, ""},
	} {
		must(t, os.WriteFile(file, []byte(c.url), 0o600))
		must(t, os.Chmod(file, c.mode))
		u, err := Find("", false)
		if err != nil || (u.Warning == "") != (c.want == "") || !strings.Contains(u.Warning, c.want) || strings.Contains(u.Warning, "hunter2") {
			t.Errorf("%s in a file of mode %v: %v %v", c.url, c.mode, u, err)
		}
	}
	if u, err := Find("redis://:hunter2@h", true); err != nil || !strings.Contains(u.Warning, "ps") || strings.Contains(u.Warning, "hunter2") {
		t.Errorf("a password in --store: %v %v", u, err)
	}
	if u, err := Find("redis://h", true); err != nil || u.Warning != "" {
		t.Errorf("no password: %v %v", u, err)
	}
}

// A URL's file is read again at each login; what it says of anything but the login changes nothing.
func TestRotation(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "url")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	}
	write("redis://one:secret@h:6379/2")
	u, err := fromFile(file)
	must(t, err)
	r := newRotation(u)
	for _, c := range []struct{ text, user string }{
		{"redis://one:secret@h:6379/2", "one"}, {"redis://two:secret@h:6379/2", "two"}, {"", "two"}, {"redis://three:sec", "two"}, {"redis://three:secret@other:6379/2", "two"},
		{"redis://three:secret@h:6379/3", "two"}, {"zk://three:secret@h:6379/2", "two"}, {"redis://three:secret@h:6379/2?prefix=x", "three"},
	} {
		write(c.text)
		if got := r.now().Parts().User; got != c.user {
			t.Errorf("after %q the user is %q, want %q", c.text, got, c.user)
		}
	}
	must(t, os.Remove(file))
	if got := r.now().Parts().User; got != "three" {
		t.Errorf("without the file it is %q", got)
	}
}

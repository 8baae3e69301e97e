// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A password where others can read it is worth a warning. Its group are the users of the store, as docs/stores has it.
func TestWarnings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "store")
	t.Setenv(EnvFile, file)
	for _, c := range []struct {
		url  string
		mode os.FileMode
		want string
	}{
		{"redis://:hunter2@h", 0o600, ""},
		{"redis://:hunter2@h", 0o640, ""},
		{"redis://:hunter2@h", 0o440, ""}, // a credential of systemd
		{"redis://:hunter2@h", 0o604, "others can read it: chmod o-r"},
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

// Without a name it is the store of the machine, never in silence another. What is empty counts as unset beside the other variable.
func TestStoreOfThisMachine(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "store"), filepath.Join(dir, "other")
	defer func(was string) { MachineFile = was }(MachineFile)
	MachineFile = file
	must(t, os.WriteFile(other, []byte("redis://other"), 0o600))
	nothing := func() error { return nil }
	for _, c := range []struct {
		name            string
		prepare         func() error
		env             []string
		url, warns, say string // want; the source, or what the error says
	}{
		{"no file", nothing, nil, "sqlite:" + dir, "", "the default, of this user alone"},
		{"a dangling link", func() error { return os.Symlink(filepath.Join(dir, "no"), file) }, nil, "", "", "the store of this machine: stat " + file},
		{"a folder", func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o755)) }, nil, "", "", "; mend the file, or name another store with --store"},
		{"empty", func() error { return errors.Join(os.Remove(file), os.WriteFile(file, nil, 0o600)) }, nil, "", "", "the file " + file},
		{"a comment", func() error { return os.WriteFile(file, []byte("# the store\nredis://:pw@h\n"), 0o600) }, nil, "", "",
			"the file " + file + " has a second line or a comment; it must hold the URL alone; mend the file, or name"},
		{"a second line", func() error { return os.WriteFile(file, []byte("sqlite:/pw\r\nmore"), 0o600) }, nil, "", "", "has a second line or a comment"},
		{"a comment alone", func() error { return os.WriteFile(file, []byte("# redis://:pw@h"), 0o600) }, nil, "", "", "has a second line or a comment"},
		{"a URL", func() error { return os.WriteFile(file, []byte("redis://:pw@h\n"), 0o600) }, nil, "redis://h", "", "as the file " + file + " says"},
		{"its group reads", func() error { return os.Chmod(file, 0o640) }, nil, "redis://h", "", "as the file"},
		{"all read", func() error { return os.Chmod(file, 0o644) }, nil, "redis://h", "chmod o-r", "as the file"},
		{"a nested hasp", nothing, []string{EnvFile, file}, "redis://h", "chmod o-r", "as the file"},
		{"a URL wins", nothing, []string{EnvURL, "redis://env", EnvFile, ""}, "redis://env", "", "as HASP_STORE says"},
		{"a file wins", nothing, []string{EnvURL, "", EnvFile, other}, "redis://other", "", "as the file " + other + " says"},
		{"both", nothing, []string{EnvURL, "redis://env", EnvFile, other}, "", "", "unset one"},
		{"empty alone", nothing, []string{EnvURL, ""}, "", "", "HASP_STORE is empty"},
	} {
		must(t, c.prepare())
		t.Run(c.name, func(t *testing.T) {
			for _, name := range []string{EnvURL, EnvFile} {
				t.Setenv(name, "")
				must(t, os.Unsetenv(name))
			}
			t.Setenv("XDG_STATE_HOME", dir)
			for i := 0; i < len(c.env); i += 2 {
				t.Setenv(c.env[i], c.env[i+1])
			}
			u, err := Find("", false)
			switch {
			case err != nil:
				if c.url != "" || !strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "pw") {
					t.Error(err)
				}
			case c.url == "" || !strings.HasPrefix(u.String(), c.url) || !strings.Contains(u.Source, c.say) || (u.Warning == "") != (c.warns == "") || !strings.Contains(u.Warning, c.warns):
				t.Errorf("%v, %q, warning %q", u, u.Source, u.Warning)
			}
		})
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
	u, err := fromFile(EnvFile, file)
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

// A file names one store, whatever directory its reader is in.
func TestFileNamesAWholePath(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "url")
	for text, works := range map[string]bool{"sqlite:locks.db": false, "SQLite:a/locks.db?ttl=5s": false, "sqlite:/a/locks.db": true, "sqlite:///a/locks.db": true} {
		must(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
		if _, err := fromFile(EnvFile, file); (err == nil) != works || err != nil && !strings.Contains(err.Error(), "write the whole path") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A file that cannot be read is said with the user that may not, and the rights that it needs.
func TestUnreadableFile(t *testing.T) {
	t.Parallel()
	if got := readable(EnvFile, &fs.PathError{Op: "open", Path: "/etc/hasp/store", Err: syscall.EACCES}).Error(); !strings.HasPrefix(got, EnvFile+": open /etc/hasp/store: permission denied for the user ") || !strings.Contains(got, "root:GROUP, chmod 640") {
		t.Error(got)
	}
}

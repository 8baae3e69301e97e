// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package store finds the store that a command is to use, and opens it with what a person is told of it.
//
// A URL may hold a password. No error and no text of this package contains one.
package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/files"
	"github.com/hasplock/hasp/open/dial"
)

// Help describes how a store is named.
const Help = `The store of the locks is named by --store URL, or by the environment variable
HASP_STORE, or by a file that HASP_STORE_FILE names (for URLs with a password).
Without any of them it is the store that the file /etc/hasp/store names, for all
users of this machine; without that file a SQLite file in your state directory.
cron and sudo drop the variables (sudo --preserve-env=HASP_STORE keeps one).

` + dial.Forms

// URL names a store, and says where its name was found.
type URL struct {
	*dial.URL
	// Warning is what a person should know about where the URL was found.
	Warning string
	Source  string // where it was found, for people

	text  string // as it was found; empty for the default
	given bool   // by a flag
	file  string // that held it, if one did
	by    string // what named the file
}

// The environment variables that name the store.
const (
	EnvURL  = "HASP_STORE"
	EnvFile = "HASP_STORE_FILE"
)

// MachineFile names the store for all users of this machine that name none; a variable for tests.
var MachineFile = "/etc/hasp/store"

// maxFile bounds a file that holds a URL.
const maxFile = 64 << 10

// Find returns the store that a flag names (given: the flag was used), or the
// environment, or the file of this machine; or the default: a SQLite file in the
// user's state directory, which it makes. Its errors say where the URL came from.
func Find(flag string, given bool) (*URL, error) {
	text, set := os.LookupEnv(EnvURL)
	file, setFile := os.LookupEnv(EnvFile)
	switch {
	case given:
		u, err := parseFrom("--store", flag)
		if err == nil {
			u.given = true
		}
		if err == nil && u.Password() {
			u.Warning = fmt.Sprintf("the password in --store can be read by every user of this machine (ps): put the URL into a file, and its name into %s", EnvFile)
		}
		return u, err
	case text != "" && file != "":
		return nil, fmt.Errorf("both %s and %s are set: unset one", EnvURL, EnvFile)
	case set && file == "":
		return parseFrom(EnvURL, text)
	case setFile:
		return fromFile(EnvFile, file)
	}
	if _, err := os.Lstat(MachineFile); runtime.GOOS != "windows" && !errors.Is(err, fs.ErrNotExist) {
		u, err := fromFile("the store of this machine", MachineFile)
		if err != nil { // the user's own would let two jobs run
			err = fmt.Errorf("%w; mend the file, or name another store with --store or %s", err, EnvURL)
		}
		return u, err
	}
	path, err := defaultFile()
	if err != nil {
		return nil, err
	}
	return sqliteURL(path)
}

// parseFrom parses a URL that where holds. An empty one is no default: a user that
// meant to name a store would silently get another.
func parseFrom(where, text string) (*URL, error) {
	if text == "" {
		return nil, fmt.Errorf("%s is empty: name a store, or leave it out for a file in your state directory; see: hasp help store", where)
	}
	u, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; see: hasp help store", where, err)
	}
	u.Source = "as " + where + " says"
	return u, nil
}

// Parse reads a URL.
func Parse(text string) (*URL, error) {
	u, err := dial.Parse(text)
	if err != nil {
		return nil, err
	}
	return &URL{URL: u, text: text}, nil
}

// sqliteURL names a file, whatever is in its name.
func sqliteURL(path string) (*URL, error) {
	u, err := Parse("sqlite:" + quotePath.Replace(path))
	if err == nil {
		u.text, u.Source = "", "the default, of this user alone"
	}
	return u, err
}

// quotePath writes a path for a URL.
var quotePath = strings.NewReplacer("%", "%25", "?", "%3F")

// readable says what to do about a file that cannot be read, which by names.
func readable(by string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w for the user %s: let it read the file (with a password: root:GROUP, chmod 640)", by, err, cmp.Or(audit.Self().User, strconv.Itoa(os.Getuid())))
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w: write the store's URL into it", by, err)
	}
	return fmt.Errorf("%s: %w", by, err)
}

// fromFile returns the URL that a file holds, which by names.
func fromFile(by, name string) (*URL, error) {
	if name == "" {
		return nil, fmt.Errorf("%s is empty: name a file that holds the store's URL, or unset it", by)
	}
	text := []byte(nil)
	info, err := os.Stat(name)
	if err == nil {
		text, err = files.Read(name, maxFile)
	}
	if err != nil {
		return nil, readable(by, err)
	}
	alone := strings.TrimSpace(string(text))
	if strings.ContainsAny(alone, "\r\n") || strings.HasPrefix(alone, "#") {
		return nil, fmt.Errorf("%s: the file %s has a second line or a comment; it must hold the URL alone", by, name)
	}
	u, err := parseFrom(fmt.Sprintf("%s (the file %s, which must hold the URL alone)", by, name), alone)
	if err != nil {
		return nil, err
	}
	if _, path, _ := strings.Cut(alone, ":"); u.IsFile() && !filepath.IsAbs(strings.TrimPrefix(path, "//")) {
		return nil, fmt.Errorf("%s: the file %s names %q, a relative path: each directory would have locks of its own; write the whole path", by, name, path)
	}
	if u.file, err = filepath.Abs(name); err != nil { // it is read again, perhaps in another folder
		return nil, fmt.Errorf("%s: %w", by, err)
	}
	u.by, u.Source = by, "as the file "+name+" says"
	// Its group may be the users of the store, and is the mask of an ACL where the file has one, as a credential of systemd has.
	if u.Password() && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 {
		u.Warning = fmt.Sprintf("%s: the file %q holds a password, and others can read it: chmod o-r", by, name)
	}
	return u, nil
}

// defaultFile returns the path of the default store, and makes its directory,
// which no other user can look into.
func defaultFile() (string, error) {
	dir, err := stateHome()
	if err != nil {
		return "", unnamed("there is no place for the default store", err)
	}
	dir = filepath.Join(dir, "hasp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", unnamed("the directory of the default store cannot be made", err)
	}
	const file = "locks.db"
	path := filepath.Join(dir, file)
	if err := checkFolder(dir, file, file+"-journal"); err != nil {
		return "", fmt.Errorf("the default store is not safe to use: %w; or name another store with --store or %s", err, EnvURL)
	}
	if err := checkDisk(dir); err != nil {
		return "", fmt.Errorf("the default store is for one machine: %w; name a file on a local disk with --store or %s; "+
			"or the same one, when this machine alone uses it: sqlite:%s", err, EnvURL, path)
	}
	return path, nil
}

// unnamed is the error of a user that has no place for a store: most often a store was named, for another.
func unnamed(why string, err error) error {
	return fmt.Errorf("no store is named (sudo and cron drop %s), and %s: %w; write the URL into %s, or give --store", EnvURL, why, err, MachineFile)
}

// StateDir is where waits for servers that are held back are remembered; empty, with the reason,
// when there is no place for that which others cannot write: what stands there is
// believed.
func StateDir() (string, error) {
	dir, err := stateHome()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "hasp")
	if err := cmp.Or(checkFolder(dir), checkFolder(filepath.Join(dir, "waits"))); err != nil {
		return "", err
	}
	return dir, nil
}

// stateHome returns the directory for state that belongs to a user and this
// machine.
func stateHome() (string, error) {
	if runtime.GOOS == "windows" {
		if dir := os.Getenv("LocalAppData"); dir != "" {
			return dir, nil
		}
		return "", errors.New("%LocalAppData% is not set")
	}
	// The XDG specification: a relative path is to be ignored.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home := os.Getenv("HOME")
	if home == "" { // services often have none
		u, err := user.Current()
		if err != nil || u.HomeDir == "" {
			return "", errors.New("there is no home directory")
		}
		home = u.HomeDir
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support"), nil
	}
	return filepath.Join(home, ".local", "state"), nil
}

// rotation is the file that a URL was found in. It is read at each login, since a password may have been changed by then.
// A file that cannot be read at the moment, or names another store, changes nothing.
type rotation struct {
	file, by, store string // file "": none
	latest          files.Latest[*dial.URL]
}

func newRotation(u *URL) *rotation {
	return &rotation{file: u.file, by: u.by, store: u.String(), latest: files.Latest[*dial.URL]{Value: u.URL}}
}

func (r *rotation) now() *dial.URL {
	if r.file == "" {
		return r.latest.Value
	}
	return r.latest.Again(func() (*dial.URL, error) {
		u, err := fromFile(r.by, r.file)
		if err == nil && u.String() != r.store {
			err = errors.New("it names another store")
		}
		if err != nil {
			return nil, err
		}
		return u.URL, nil
	}, r.file)
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
)

// The environment variables that name the store.
const (
	EnvURL  = "HASP_STORE"
	EnvFile = "HASP_STORE_FILE"
)

// maxFile bounds the file that HASP_STORE_FILE names.
const maxFile = 64 << 10

// Find returns the store that a flag names (given: the flag was used), or the
// environment, or the default: a SQLite file in the user's state directory,
// which it makes. Its errors say where the URL came from.
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
	case set && setFile:
		return nil, fmt.Errorf("both %s and %s are set: unset one", EnvURL, EnvFile)
	case set:
		return parseFrom(EnvURL, text)
	case setFile:
		return fromFile(file)
	}
	path, err := defaultFile()
	if err != nil {
		return nil, err
	}
	return &URL{place: sqliteFile(path)}, nil
}

// parseFrom parses a URL that where holds. An empty one is no default: whoever
// meant to name a store would silently get another.
func parseFrom(where, text string) (*URL, error) {
	if text == "" {
		return nil, fmt.Errorf("%s is empty: name a store, or leave it out for a file in your state directory; see: hasp help store", where)
	}
	u, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; see: hasp help store", where, err)
	}
	u.text = text
	return u, nil
}

func fromFile(name string) (*URL, error) {
	if name == "" {
		return nil, fmt.Errorf("%s is empty: name a file that holds the store's URL, or unset it", EnvFile)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvFile, err)
	}
	text, err := ReadFile(name, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvFile, err)
	}
	u, err := parseFrom(fmt.Sprintf("%s (the file %s)", EnvFile, name), strings.TrimSpace(string(text)))
	if err == nil {
		u.file = name
	}
	if err == nil && u.Password() && runtime.GOOS != "windows" && info.Mode().Perm()&0o044 != 0 {
		u.Warning = fmt.Sprintf("the file %q that %s names holds a password, and others can read it: chmod 600", name, EnvFile)
	}
	return u, err
}

// defaultFile returns the path of the default store, and makes its directory,
// which nobody else can look into.
func defaultFile() (string, error) {
	dir, err := stateHome()
	if err != nil {
		return "", fmt.Errorf("there is no place for the default store (%w): name one with --store or %s; see: hasp help store", err, EnvURL)
	}
	dir = filepath.Join(dir, "hasp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("the directory of the default store cannot be made: %w; name another store with --store or %s", err, EnvURL)
	}
	const file = "locks.db"
	path := filepath.Join(dir, file)
	if err := checkFolder(dir, file, file+"-journal"); err != nil {
		return "", fmt.Errorf("the default store is not safe to use: %w; or name another store with --store or %s", err, EnvURL)
	}
	if err := checkDisk(dir); err != nil {
		return "", fmt.Errorf("the default store is for one machine: %w; name a file on a local disk with --store or %s; "+
			"or the same one, when this machine alone uses it: %s", err, EnvURL, &URL{place: sqliteFile(path)})
	}
	return path, nil
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

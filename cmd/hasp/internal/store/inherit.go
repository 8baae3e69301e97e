// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Inherit returns the variable that names this store to a hasp within a command,
// wherever that command goes: paths are absolute. A URL with a password that came
// from a command line is in no environment: it is put into a file that only this
// user can read, and that remove deletes.
func (u *URL) Inherit() (variable string, remove func(), err error) {
	nothing := func() {}
	text := u.inherited()
	switch {
	case text != "":
		return EnvURL + "=" + text, nothing, nil
	case u.file != "":
		return EnvFile + "=" + u.file, nothing, nil
	case !u.given || !u.Secret():
		return EnvURL + "=" + u.text, nothing, nil
	}
	dir, err := os.MkdirTemp("", "hasp-")
	remove = func() { _ = os.RemoveAll(dir) } // of no use to others meanwhile
	name := filepath.Join(dir, "store")
	if err == nil {
		if err = os.WriteFile(name, []byte(u.text+"\n"), 0o600); err != nil {
			remove()
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("the store's URL has a password, and no file for it could be made: %w; name another directory with TMPDIR, or put the URL into a file of yours, and its name into %s", err, EnvFile)
	}
	return EnvFile + "=" + name, remove, nil
}

// inherited returns the URL with whole paths; empty: as it was given.
func (u *URL) inherited() string {
	if !u.IsFile() {
		return ""
	}
	text := "sqlite:" + quotePath.Replace(u.Parts().Addrs[0])
	if _, query, ok := strings.Cut(u.text, "?"); ok {
		text += "?" + query
	}
	return text
}

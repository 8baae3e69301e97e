// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkFolder refuses a folder of ours that others could have prepared, as ssh
// does: it must be this user's, no other may write it, and what hasp opens in it
// are files of this user. A folder that is not there yet is fine.
func checkFolder(dir string, files ...string) error {
	link, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case foreign(link) != "":
		return fmt.Errorf("%s belongs to %s, not to this user", dir, foreign(link))
	case foreign(info) != "":
		return fmt.Errorf("%s belongs to %s, not to this user", dir, foreign(info))
	case othersWrite(info):
		return fmt.Errorf("%s can be written by others (its mode is %v): chmod go-w it, after a look at what is in it", dir, info.Mode().Perm())
	}
	for _, name := range files {
		path := filepath.Join(dir, name)
		switch info, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a plain file (a symbolic link?): remove it", path)
		case foreign(info) != "":
			return fmt.Errorf("%s belongs to %s, not to this user: remove it, or chown it", path, foreign(info))
		}
	}
	return nil
}

// checkDisk refuses a file system that several machines may share: the locks on
// it cannot be relied on, and each machine has a clock of its own.
func checkDisk(dir string) error {
	if kind := sharedDisk(dir); kind != "" {
		return fmt.Errorf("%s is on %s, which other machines may use, too", dir, kind)
	}
	return nil
}

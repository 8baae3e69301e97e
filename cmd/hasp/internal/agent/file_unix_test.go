// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A link to a file that is not there yet has the key that the file will have, also in a directory that is a link.
func TestKeyOfALinkToNothing(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err := errors.Join(err, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755), os.Mkdir(filepath.Join(dir, "w"), 0o755),
		os.Symlink(filepath.Join(dir, "a/b/c"), filepath.Join(dir, "w/link")), os.Symlink("../new", filepath.Join(dir, "a/b/c/f"))); err != nil {
		t.Fatal(err)
	}
	if key, err := fileKey(dir, "w/link/f"); err != nil || key != filepath.ToSlash(filepath.Join(dir, "a/b/new")) {
		t.Errorf("the key is %q: %v", key, err)
	}
}

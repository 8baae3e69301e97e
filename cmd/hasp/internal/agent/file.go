// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hasplock/hasp/driver"
)

// fileKey is the key of a file: its path in the main worktree of its repository, whatever worktree it is in, and links resolved; of
// a file outside of repositories its path. A relative one begins at dir. The file need not be there.
func fileKey(dir, path string) (string, error) {
	if path == "" {
		return "", errors.New("a path is empty")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = resolve(path, 0)
	}
	if err != nil {
		return "", err
	}
	key := path
	for root := filepath.Dir(path); ; root = filepath.Dir(root) {
		if common := commonDir(root); common != "" {
			if filepath.Base(common) == ".git" { // else it is bare, or a submodule's
				common = filepath.Dir(common)
			}
			key = common + strings.TrimPrefix(path, strings.TrimSuffix(root, string(filepath.Separator)))
			break
		}
		if root == filepath.Dir(root) {
			break
		}
	}
	if key = filepath.ToSlash(key); len(key) > driver.MaxKey {
		sum := sha256.Sum256([]byte(key))
		key = strings.ToValidUTF8(key[:driver.MaxKey/2], "") + "…" + hex.EncodeToString(sum[:])
	}
	return key, nil
}

// resolve follows the links of a path whose last parts need not be there.
func resolve(path string, links int) (string, error) {
	found, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	if to, err := os.Readlink(path); err == nil { // to nothing yet
		if links++; links > 40 {
			return "", fmt.Errorf("%s: too many links", path)
		}
		if !filepath.IsAbs(to) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // ".." is that of where the link is, not of how we came there
			if err != nil {
				return "", err
			}
			to = filepath.Join(dir, to)
		}
		return resolve(to, links)
	}
	dir, err := resolve(filepath.Dir(path), links)
	return filepath.Join(dir, filepath.Base(path)), err
}

// commonDir is the directory of the repository whose worktree begins at root, which all worktrees share; empty: none begins there.
func commonDir(root string) string {
	dir := filepath.Join(root, ".git")
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return ""
	case info.Mode().IsRegular(): // a worktree, or a submodule
		to, ok := strings.CutPrefix(line(dir), "gitdir: ")
		if !ok {
			return ""
		}
		dir = in(root, to)
	case !info.IsDir():
		return ""
	}
	if to := line(filepath.Join(dir, "commondir")); to != "" {
		dir = in(dir, to)
	}
	if found, err := filepath.EvalSymlinks(dir); err == nil {
		return found
	}
	return ""
}

func in(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// line is the text of a small file; empty: there is none.
func line(name string) string {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() || info.Size() > 8<<10 {
		return ""
	}
	text, _ := os.ReadFile(name)
	return strings.TrimRight(string(text), "\r\n")
}

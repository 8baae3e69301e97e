// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// width is that of a fence in its file: each has as many digits, so that one takes the place of another
// in a single write, which needs no more of the disk.
const width = 20

// WriteFile replaces a file as a whole, unless the fence is too small. The newest fence stands in a file beside it, NAME.fence,
// which is locked (flock) from the comparison until the file was replaced: never delete NAME.fence while
// a late holder may still write. All programs must be on one machine, and the folder on a disk of it. The error is a
// *[StaleError], [errors.ErrUnsupported] on systems without flock (Windows), or that of the file system.
//
// A crash on the way leaves the old file, the newest fence, and perhaps a file .NAME.*.
func WriteFile(name string, data []byte, perm os.FileMode, fence uint64) (err error) {
	if err := Check(name, fence, 0); err != nil {
		return err
	}
	side, err := os.OpenFile(name+".fence", os.O_RDWR|os.O_CREATE, perm|0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.Close()) }()
	if err := compare(side, name, fence, true); err != nil {
		return err
	}
	temporary, err := write(name, data, perm)
	if err != nil {
		return err
	}
	// First the fence: were it the other way round, a crash between the two would let in a smaller one.
	if _, err = side.WriteAt(fmt.Appendf(nil, "%0*d\n", width, fence), 0); err == nil {
		err = side.Sync()
	}
	if err == nil {
		err = os.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return syncDir(filepath.Dir(name))
}

// ReadFile reads a file, unless it was written with a larger fence. The error is as for [WriteFile], or [fs.ErrNotExist].
func ReadFile(name string, fence uint64) (data []byte, err error) {
	if err := Check(name, fence, 0); err != nil {
		return nil, err
	}
	side, err := os.Open(name + ".fence")
	if errors.Is(err, fs.ErrNotExist) { // it was never written with one
		return os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, side.Close()) }()
	if err := compare(side, name, fence, false); err != nil {
		return nil, err
	}
	return os.ReadFile(name)
}

// compare locks the file of the newest fence, alone or together with others, until it is closed.
func compare(side *os.File, name string, fence uint64, alone bool) error {
	if err := lock(side, alone); err != nil {
		return fmt.Errorf("fence: lock %q: %w", side.Name(), err)
	}
	text, err := io.ReadAll(io.LimitReader(side, width+2))
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return nil
	}
	digits, whole := strings.CutSuffix(string(text), "\n")
	newest, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !whole || len(digits) != width {
		return fmt.Errorf("fence: %q holds no fence: was it changed by hand? Write a larger one than any lease's, in %d digits and a line feed", side.Name(), width)
	}
	return Check(name, fence, newest)
}

// write makes a file beside the file that it is to replace.
func write(name string, data []byte, perm os.FileMode) (temporary string, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), err
}

// syncDir makes what was renamed in a folder outlive a crash of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

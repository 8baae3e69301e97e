// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// mount mounts a small file system in memory.
func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("only root can mount a small disk, and not in every container: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	return dir
}

// Rule: on a full disk new locks are refused with what to do, also by the
// first to ask; nothing crashes, and with room it works again.
func TestFullDisk(t *testing.T) {
	dir := mount(t, "size=320k")
	path := filepath.Join(dir, "locks.db")
	d := openDriver(t, path)
	held, err := 0, error(nil)
	for err == nil && held < 1000 {
		_, err = contend.Try(t.Context(), d, request(fmt.Sprintf("%0500d", held)))
		held++
	}
	t.Logf("after %d locks: %v", held, err)
	full := func(d *Driver, err error) {
		t.Helper()
		if d.Classify(err) != driver.ClassFull || !strings.Contains(err.Error(), "make room") {
			t.Errorf("class %d: %v", d.Classify(err), err)
		}
	}
	full(d, err)
	if info, err := d.Inspect(t.Context(), fmt.Sprintf("%0500d", 0)); err != nil || !info.Held {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	other := openDriver(t, filepath.Join(dir, "other.db"))
	_, err = contend.Try(t.Context(), other, request("k"))
	t.Logf("a new file: %v", err)
	full(other, err)
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=2m"))
	granted(t, d, request("k"))
	granted(t, other, request("k"))
}

// Rule: the same for a file that nobody has open, for which SQLite has to make its
// -journal, however little room there is.
func TestFullDiskAtTheFirstCall(t *testing.T) {
	dir := mount(t, "size=512k")
	path := filepath.Join(dir, "locks.db")
	used(t, path)
	fill := filepath.Join(dir, "fill")
	must(t, os.WriteFile(fill, make([]byte, 512<<10-64<<10), 0o600))
	for {
		f, err := os.OpenFile(fill, os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		must(t, os.RemoveAll(path+"-journal"))
		_, err = f.Write(make([]byte, 4096))
		must(t, f.Close())
		d := openDriver(t, path)
		_, tried := contend.Try(t.Context(), d, request(rand.Text()))
		must(t, d.Close())
		if tried != nil && (d.Classify(tried) != driver.ClassFull || !strings.Contains(tried.Error(), "make room") || strings.Contains(tried.Error(), "_pragma")) {
			t.Errorf("class %d: %v", d.Classify(tried), tried)
		}
		if err != nil {
			failIf(t, tried == nil, "granted on a full disk")
			break
		}
	}
	must(t, os.Remove(fill))
	granted(t, openDriver(t, path), request("other"))
}

// Rule: a read-only file system has its own error.
func TestReadOnlyDisk(t *testing.T) {
	dir := mount(t, "size=2m")
	path := filepath.Join(dir, "locks.db")
	used(t, path)
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=2m"))
	d := openDriver(t, path)
	_, err := contend.Try(t.Context(), d, request("k"))
	t.Logf("%v", err)
	if d.Classify(err) != driver.ClassReadOnly || !strings.Contains(err.Error(), "locks must be written") {
		t.Errorf("class %d: %v", d.Classify(err), err)
	}
}

// Rule: a file that is mounted by itself, as into a container, is refused there: its
// -journal is not that of the other path.
func TestMountedFile(t *testing.T) {
	path, second := newFile(t), filepath.Join(t.TempDir(), "a b.db")
	d, held := openDriver(t, path), request("k")
	granted(t, d, held)
	must(t, os.WriteFile(second, nil, 0o600))
	if err := syscall.Mount(path, second, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("only root can mount a file, and not in every container: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(second, syscall.MNT_DETACH)) })
	fails(t, openDriver(t, second), held, second+" is mounted by itself", "share its folder")
	renewed(t, d, held)
}

// Rule: processes in time namespaces of their own agree about the clock.
func TestTimeNamespace(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skipf("no unshare: %v", err)
	}
	if out, err := exec.Command(unshare, "--time", "--boottime", "100000", "true").CombinedOutput(); err != nil {
		t.Skipf("no time namespaces here: %v: %s", err, out)
	}
	path := newFile(t)
	d := openDriver(t, path)
	granted(t, d, request("orders/42"))
	cmd := exec.Command(unshare, "--time", "--boottime", "100000", "--fork", "--kill-child", os.Args[0], path, "orders/42")
	answer := startAs(t, "once", cmd).says("answer")
	failIf(t, !strings.HasPrefix(answer, "false 0 <nil>"), "a process whose clock is a day ahead: %s", answer)
}

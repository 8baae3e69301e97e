// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqldriver

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// Rule: a holder that was stopped for longer than its TTL learns that the
// lease is lost, and its fence is below its successor's.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	d := openDriver(t, path)
	p := start(t, "hold", path, "orders/42", "3s")
	fence, err := strconv.ParseUint(p.says("held"), 10, 64)
	must(t, err)
	must(t, p.Process.Signal(syscall.SIGSTOP))
	r := request("orders/42")
	res := try(t, d, queued(r))
	for !res.Granted {
		time.Sleep(res.RetryIn)
		res = try(t, d, queued(r))
	}
	failIf(t, res.Fence <= fence, "the fence is %d after %d", res.Fence, fence)
	must(t, p.Process.Signal(syscall.SIGCONT))
	if lost := p.says("lost"); !strings.Contains(lost, driver.ErrLost.Error()) {
		t.Errorf("the holder that was stopped says: %s", lost)
	}
	if info, err := d.Inspect(t.Context(), "orders/42"); err != nil || info.Holder.Owner != r.Owner {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
}

// Rule: a process that was stopped while it writes locks the file for as long
// as it is stopped, and no longer.
func TestStoppedWriter(t *testing.T) {
	path := newFile(t)
	used(t, path)
	d := openDriver(t, path)
	p := start(t, "write", path, "UPDATE hasp_meta SET fence = fence + 1")
	p.says("writing")
	must(t, p.Process.Signal(syscall.SIGSTOP))
	out := make(chan error, 1)
	go func() {
		_, err := contend.Try(t.Context(), d, request("orders/42"))
		out <- err
	}()
	waitFor(t, "the Try waits for the file", d.writes.waits)
	must(t, p.Process.Signal(syscall.SIGCONT))
	must(t, p.stdin.Close()) // the end of it: its transaction is rolled back
	must(t, <-out)
}

// Rule: a process that was stopped while it reads keeps others from writing for as
// long as it is stopped, and no longer. What it says then names that.
func TestStoppedReader(t *testing.T) {
	path := newFile(t)
	used(t, path)
	d := NewSQLite(openDSN(t, strings.Replace(SQLiteDSN(path), "busy_timeout(5000)", "busy_timeout(1000)", 1)))
	defer d.Close()
	p := start(t, "write", path, "ROLLBACK; BEGIN; SELECT * FROM hasp_lease")
	p.says("writing")
	must(t, p.Process.Signal(syscall.SIGSTOP))
	_, err := contend.Try(t.Context(), d, request("orders/42"))
	locked(t, d, path, err)
	must(t, p.Process.Signal(syscall.SIGCONT))
	must(t, p.stdin.Close())
	must(t, p.Wait())
	d.fileWait = time.Minute
	granted(t, d, request("orders/42"))
}

// Rule: a process that is killed in the middle of a commit leaves the file half
// written; the next one undoes it, whatever it came for.
func TestKilledInACommit(t *testing.T) {
	path := newFile(t)
	used(t, path)
	d := openDriver(t, path)
	for i := range 200 { // more pages than the cache below, so that some are written before the commit
		granted(t, d, request(fmt.Sprintf("%0500d", i)))
	}
	whole, err := os.ReadFile(path)
	must(t, err)
	p := start(t, "write", path, "ROLLBACK; PRAGMA cache_size = 1; BEGIN IMMEDIATE; UPDATE hasp_meta SET fence = fence + 1000000000; DELETE FROM hasp_lease WHERE key > 'a'; UPDATE hasp_lease SET expires = 0")
	p.says("writing")
	must(t, p.Process.Kill())
	_ = p.Wait()
	if half, err := os.ReadFile(path); err != nil || bytes.Equal(half, whole) {
		t.Fatalf("nothing of the transaction is in the file: %v", err)
	}
	if info, err := openDriver(t, path).Inspect(t.Context(), "held"); err != nil || !info.Held {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	refused(t, d, request("held"))
	if res := granted(t, d, request("orders/42")); res.Fence > uint64(time.Now().UnixMicro()) {
		t.Errorf("the fence is %d", res.Fence)
	}
}

// Rule: a file that this user may not read or write has its own error.
func TestOtherUsersFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		dir, file, side os.FileMode
		class           driver.Class
	}{
		{"the directory is closed", 0o700, 0o666, 0o666, driver.ClassDenied},
		{"the file is closed", 0o755, 0o600, 0o600, driver.ClassDenied},
		{"the file may only be read", 0o755, 0o644, 0o644, driver.ClassDenied},
		{"only what is beside the file is closed", 0o755, 0o666, 0o600, driver.ClassMisconfigured},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "store", "locks.db")
			must(t, os.Mkdir(filepath.Dir(path), 0o755))
			d := openDriver(t, path)
			granted(t, d, request("held"))
			must(t, os.Chmod(path, c.file))
			must(t, os.Chmod(path+"-journal", c.side))
			must(t, os.Chmod(filepath.Dir(path), c.dir))
			answer := asNobody(t, dir, path).says("answer")
			t.Log(answer)
			if !strings.HasPrefix(answer, fmt.Sprintf("false %d ", c.class)) || !strings.Contains(answer, "ls -l") {
				t.Errorf("want the class %d", c.class)
			}
		})
	}
}

// asNobody runs a Try as a user without rights, with a copy of the test
// binary, as the original lies where that user may not go.
func asNobody(t *testing.T, dir, path string) *process {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	exe := filepath.Join(dir, "exe")
	// Another process copies it: one that this process starts meanwhile would inherit the open file, which could not run then.
	must(t, exec.Command("cp", os.Args[0], exe).Run())
	must(t, os.Chmod(exe, 0o755))
	cmd := exec.Command(exe, path, "orders/42")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return startAs(t, "once", cmd)
}

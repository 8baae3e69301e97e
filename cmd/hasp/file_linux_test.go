// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// onFile is a sandbox whose store is a file, and a copy of hasp that every user
// may execute.
func onFile(t *testing.T) (s *sandbox, exe, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user, and mount")
	}
	self, err := exec.LookPath("hasp")
	must(t, err)
	dir := t.TempDir()
	opened(t, dir, 0o755)
	exe = filepath.Join(dir, "hasp")
	must(t, os.Link(self, exe))
	must(t, os.Mkdir(filepath.Join(dir, "locks"), 0o755))
	path = filepath.Join(dir, "locks", "locks.db")
	return newSandbox(t, "sqlite:"+path), exe, path
}

// opened opens a t.TempDir to other users.
func opened(t testing.TB, dir string, mode os.FileMode) {
	t.Helper()
	for _, d := range []string{dir, filepath.Dir(dir)} { // the test's, and this one of it
		must(t, os.Chmod(d, mode))
	}
}

// as runs a program as another user, in a group that all of them are in.
func (s *sandbox) as(uid uint32, words ...string) *proc {
	p := &proc{t: s.t, cmd: exec.Command(words[0], words[1:]...)}
	p.cmd.Dir, p.cmd.Env = "/", s.env()
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = &p.out, &p.err, limit
	if uid != 0 {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{someGroup}}}
	}
	must(s.t, p.cmd.Start())
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Wait()
		}
	})
	return p
}

const someGroup, oneUser, anotherUser, stranger = 54000, 54001, 54002, 54003

// Several users of one group share a file, as docs/stores/sqlite.md says. What one leaves
// behind that was killed, root as well, is no trouble for the others.
func TestSeveralUsers(t *testing.T) {
	t.Parallel()
	s, exe, path := onFile(t)
	dir := filepath.Dir(path)
	must(t, os.Chown(dir, 0, someGroup))
	must(t, os.Chmod(dir, 0o770|os.ModeSetgid))
	must(t, os.WriteFile(path, nil, 0))
	must(t, os.Chown(path, 0, someGroup))
	must(t, os.Chmod(path, 0o660))
	for _, holder := range []uint32{oneUser, 0, anotherUser} {
		key := fmt.Sprint("k", holder)
		p := s.as(holder, exe, "run", "-v", "--ttl", ttl, key, "--", "sleep", "1000")
		p.says("acquired")
		info, err := os.Stat(path + "-journal")
		must(t, err)
		if info.Mode().Perm() != 0o660 {
			t.Errorf("the -journal has the mode %v", info.Mode())
		}
		for _, other := range []uint32{oneUser, anotherUser, 0} {
			s.as(other, exe, "run", "-n", key, "--", "true").ends(75)
			s.as(other, exe, "run", fmt.Sprint("of ", other), "--", "true").ends(0)
		}
		must(t, p.cmd.Process.Kill())
		_ = p.cmd.Wait()
	}
	s.as(anotherUser, exe, "run", fmt.Sprint("k", oneUser), "k0", fmt.Sprint("k", anotherUser), "--", "true").ends(0)
	out := exec.Command(exe, "run", "-q", "k", "--", "sh", "-c", "umask")
	out.Env = s.env()
	inside, err := out.Output()
	must(t, err)
	if outside, err := exec.Command("sh", "-c", "umask").Output(); err != nil || string(inside) != string(outside) {
		t.Errorf("the command has the umask %s, not %s: %v", inside, outside, err)
	}
	p := &proc{t: t, cmd: exec.Command(exe, "run", "k", "--", "true")} // of no group
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = "/", s.env(), &p.err
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	must(t, p.cmd.Start())
	p.ends(77)
	matches(t, p.err.String(), `does not allow this: .*for several users .*chgrp`)
}

// A read-only file system, and another user's file: whoever lists gets an
// answer, whoever locks an error.
func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	s, exe, path := onFile(t)
	dir := filepath.Dir(path)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=755"); err != nil {
		t.Skipf("not in every container: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	s.as(0, exe, "run", "k", "--", "true").ends(0)
	look := func(uid uint32) {
		t.Helper()
		for _, words := range [][]string{{exe, "ls"}, {exe, "show", "k"}} {
			s.as(uid, words...).ends(0)
		}
		p := s.as(uid, exe, "run", "-n", "k", "--", "true")
		p.ends(78)
		matches(t, p.err.String(), `cannot be written: .*locks must be written: make `)
		if strings.Contains(p.err.String(), "replica") {
			t.Errorf("a file is no replica: %s", p.err.String())
		}
	}
	look(stranger)
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=4m,mode=755"))
	look(0)
}

// A container with its own boot id shares a file with the host: what one holds
// the other does not get, and no command fails afterwards.
func TestTwoBootIDs(t *testing.T) {
	t.Parallel()
	s, exe, _ := onFile(t)
	id := filepath.Join(filepath.Dir(exe), "id")
	must(t, os.WriteFile(id, []byte("00000000-1111-2222-3333-444444444444\n"), 0o644))
	inside := func(words ...string) []string {
		const script = `mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"`
		return append([]string{"unshare", "--mount", "sh", "-c", script, "sh", id, exe}, words...)
	}
	outside := func(words ...string) []string { return append([]string{exe}, words...) }
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$1" /proc/sys/kernel/random/boot_id`, "sh", id).CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces here: %v: %s", err, out)
	}
	s.fifo("gate")
	for range 2 {
		for _, pair := range [][2]func(...string) []string{{inside, outside}, {outside, inside}} {
			holder, other := pair[0], pair[1]
			p := s.as(0, holder("run", "--ttl", ttl, "k", "--", "sh", "-c", "echo held >&2; read x <"+filepath.Join(s.dir, "gate"))...)
			p.says("held")
			s.as(0, other("run", "-n", "k", "--", "true")...).ends(75)
			s.as(0, other("run", "another", "--", "true")...).ends(0)
			was, left := 0.0, 1e9
			must(t, eventually(func() bool { // its lease is renewed
				look := s.as(0, other("show", "k", "-o", "json")...)
				look.ends(0)
				_, text, _ := strings.Cut(look.out.String(), `"left_seconds":`)
				was = left
				_, err := fmt.Sscan(text, &left)
				return err == nil && left > was
			}))
			s.as(0, other("run", "-n", "k", "--", "true")...).ends(75)
			s.open("gate")
			p.ends(0)
			s.as(0, other("run", "-n", "k", "--", "true")...).ends(0)
		}
	}
}

// The default store is in a folder that others can have prepared: it is refused.
func TestStateFolder(t *testing.T) {
	t.Parallel()
	s, exe, _ := onFile(t)
	state := filepath.Join(s.dir, "state")
	dir := filepath.Join(state, "hasp")
	must(t, os.MkdirAll(dir, 0o700))
	ls := func(code int, pattern string) {
		t.Helper()
		p := &proc{t: t, cmd: exec.Command(exe, "ls")}
		p.cmd.Env = []string{"XDG_STATE_HOME=" + state}
		p.cmd.Stderr = &p.err
		must(t, p.cmd.Start())
		p.ends(code)
		matches(t, p.err.String(), pattern)
	}
	ls(0, `no key is held`)
	must(t, os.Chmod(dir, 0o770))
	ls(78, `not safe to use: .* can be written by others .*chmod go-w`)
	must(t, os.Chmod(dir, 0o700))
	must(t, os.Chown(dir, stranger, 0))
	ls(78, `belongs to the user 54003`)
	must(t, os.Chown(dir, 0, 0))
	elsewhere := filepath.Join(s.dir, "elsewhere")
	must(t, os.WriteFile(elsewhere, nil, 0o600))
	for _, name := range []string{"locks.db", "locks.db-journal"} {
		_ = os.Remove(filepath.Join(dir, name))
		must(t, os.Symlink(elsewhere, filepath.Join(dir, name)))
		ls(78, name+` is not a plain file`)
		must(t, os.Remove(filepath.Join(dir, name)))
	}
	must(t, os.WriteFile(filepath.Join(dir, "locks.db"), nil, 0o600))
	must(t, os.Chown(filepath.Join(dir, "locks.db"), stranger, 0))
	ls(78, `locks\.db belongs to the user 54003`)
	must(t, os.Remove(filepath.Join(dir, "locks.db")))
	ls(0, `no key is held`)
}

// What ends at a limit of this process is told by that limit: no disk is full, and /proc is there.
func TestLimitsOfTheProcess(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	for _, c := range []struct {
		limit string
		code  int
		want  string
	}{
		{"-f 8", 78, `cannot do this: .*would be larger than this process may write \(ulimit -f\)$`},
		{"-n 8", 69, `has as many open files as it may \(ulimit -n\)$`},
	} {
		p := s.haspWith(func(cmd *exec.Cmd) {
			cmd.Args = append([]string{"bash", "-c", "exec 3>&- 4>&- 5>&-; ulimit " + c.limit + `; exec -a hasp "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
			cmd.Path = "/bin/bash"
		}, "run", "-n", "k", "--", "true")
		p.ends(c.code)
		matches(t, p.err.String(), `^hasp: the store sqlite:\S+ .*`+c.want)
	}
}

// No key is let go of because the time to keep it was too long for a clock.
func TestKeptForCenturies(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	for _, d := range []string{"9223372036", "2562047h", "876000h"} {
		matches(t, s.exits(64, "run", "--hold-at-least", d, "k", "--", "touch", "ran"), `out of range|longer than`)
	}
	p := s.hasp("run", "--hold-at-least", "43800h", "k", "--", "true")
	p.says(`keeping "k" for another`)
	p.signal(syscall.SIGTERM)
	p.ends(0) // as the command did
	matches(t, p.err.String(), `the store keeps "k" for another 18\d\dd`)
	s.exits(75, "run", "-n", "k", "--", "true")
}

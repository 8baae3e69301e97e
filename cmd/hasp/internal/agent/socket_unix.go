// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/process"
	"golang.org/x/sys/unix"
)

// systemdFD is the first descriptor that systemd passes: sd_listen_fds(3).
const systemdFD = 3

// socket opens the socket that --listen names. Only this user, or the group, can connect to it.
func (a *agent) socket() (net.Listener, error) {
	if a.o.listen == "systemd:" {
		if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") != "1" {
			return nil, errors.New("--listen systemd: needs the one socket of a .socket unit, and systemd passed none")
		}
		return unixListener(os.NewFile(systemdFD, "systemd"))
	}
	path, ok := strings.CutPrefix(a.o.listen, "unix:")
	if !ok || path == "" {
		return nil, fmt.Errorf("--listen %q is no socket: name unix:PATH, or systemd: for one of systemd's", a.o.listen)
	}
	if most := len(syscall.RawSockaddrUnix{}.Path); len(path) >= most {
		return nil, fmt.Errorf("--listen names a path of %d bytes: that of a socket has less than %d", len(path), most)
	}
	group := -1
	if a.o.group != "" {
		g, err := user.LookupGroup(a.o.group)
		if err != nil {
			return nil, fmt.Errorf("--group: %w", err)
		}
		if group, err = strconv.Atoi(g.Gid); err != nil {
			return nil, err
		}
	}
	defer lockDir(filepath.Dir(path))()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	before := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(before)
	if err != nil || group < 0 {
		return l, err
	}
	if err := errors.Join(os.Chown(path, -1, group), os.Chmod(path, 0o660)); err != nil {
		return nil, errors.Join(fmt.Errorf("--group: %w", err), l.Close())
	}
	return l, nil
}

// unixListener takes a socket that systemd opened. A TCP socket does not tell the user of its client.
func unixListener(f *os.File) (net.Listener, error) {
	l, err := net.FileListener(f)
	if _, ok := l.(*net.UnixListener); err == nil && !ok {
		return nil, errors.Join(fmt.Errorf("--listen systemd: needs a unix socket, and systemd passed %s", l.Addr()), l.Close())
	}
	return l, err
}

// lockDir keeps other agents from the sockets of a directory, where that can be: of two agents that find a stale socket, the second would
// remove that of the first. It waits for two seconds at most: an agent is done in a moment, and other programs may lock the directory, too.
func lockDir(dir string) (unlock func()) {
	d, err := os.Open(dir)
	for pause := time.Millisecond; err == nil && pause < 2*time.Second; pause *= 2 {
		if !errors.Is(unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(pause)
	}
	return func() { _ = d.Close() }
}

// removeStale removes the socket of an agent that was killed.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return nil //nolint:nilerr // listening says what is wrong
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is there, and no socket: name another path", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("an agent, or another program, listens on %s already", path)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	return nil
}

// peer is the process at the other end of a connection. The system says which users may connect; where it does not look at the permissions of
// a socket, the user must be this one, or root.
func (a *agent) peer(c net.Conn) (*driver.Label, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var pid, uid int
	var failed error
	if err := raw.Control(func(fd uintptr) { pid, uid, failed = credentials(int(fd)) }); err != nil || failed != nil {
		return nil, errors.Join(err, failed)
	}
	if a.o.group == "" && a.o.listen != "systemd:" && uid != 0 && uid != os.Geteuid() {
		return nil, fmt.Errorf("it is of the user %d, and the agent of %d: --group lets others in", uid, os.Geteuid())
	}
	return labelOf(pid, uid), nil
}

// parent is the process that started this one.
func parent() *driver.Label { return labelOf(os.Getppid(), os.Getuid()) }

func labelOf(pid, uid int) *driver.Label {
	l := &driver.Label{PID: pid, User: strconv.Itoa(uid), Process: process.Of(pid)}
	l.Host, _ = os.Hostname() // a label without a host is still a label
	if u, err := user.LookupId(l.User); err == nil {
		l.User = u.Username
	}
	return l
}

// standard is the standard input and output. A read from a pipe or a socket can be ended, one from a terminal cannot.
func standard() streams {
	in, ends := os.Stdin, false
	if info, err := in.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 && unix.SetNonblock(0, true) == nil {
		in, ends = os.NewFile(0, "standard input"), true
	}
	out := os.Stdout
	if info, err := out.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 && unix.SetNonblock(1, true) == nil {
		out = os.NewFile(1, "standard output")
	}
	return streams{in, out, func() { _, _ = in.Close(), out.Close() }, ends}
}

// ready tells systemd that clients may come.
func ready() {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	c, err := net.Dial("unixgram", name)
	if err != nil { // it is not for us
		return
	}
	_, _ = c.Write([]byte("READY=1"))
	_ = c.Close()
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// Shells is the folder of the sockets of the keepers, which hold keys for shells, in the
// state directory. Only this user can connect to them.
type Shells struct{ path string }

// OpenShells finds the folder, which need not be there.
func OpenShells() (Shells, error) {
	home, err := stateHome()
	if err != nil {
		return Shells{}, fmt.Errorf("there is no place for the sockets of those who hold keys for shells (%w): set HOME or XDG_STATE_HOME", err)
	}
	state := filepath.Join(home, "hasp")
	s := Shells{filepath.Join(state, "shells")}
	if err := errors.Join(checkFolder(state), checkFolder(s.path)); err != nil {
		return s, fmt.Errorf("the folder of those who hold keys for shells is not safe to use: %w", err)
	}
	return s, nil
}

// Listen makes a socket, which is removed when it is closed.
func (s Shells) Listen(name string) (net.Listener, error) {
	if err := os.MkdirAll(s.path, 0o700); err != nil {
		return nil, err
	}
	defer limitNewFiles(0o600)()
	l, err := through(s, name, func(path string) (*net.UnixListener, error) {
		return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // its path is over
	return socket{l, filepath.Join(s.path, name)}, nil
}

// Dial connects to a socket.
func (s Shells) Dial(name string) (net.Conn, error) {
	return through(s, name, func(path string) (net.Conn, error) { return net.Dial("unix", path) })
}

// Remove removes the socket of a maker that was killed.
func (s Shells) Remove(name string) { _ = os.Remove(filepath.Join(s.path, name)) }

// Names returns the names of all sockets.
func (s Shells) Names() (names []string, err error) {
	entries, err := os.ReadDir(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// through does something with a short path: that of a socket in a deep folder
// would be too long.
func through[T any](s Shells, name string, do func(path string) (T, error)) (none T, err error) {
	dir, err := os.Open(s.path)
	if err != nil {
		return none, err
	}
	defer dir.Close()
	return do(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name))
}

type socket struct {
	net.Listener
	path string
}

func (s socket) Close() error { return errors.Join(os.Remove(s.path), s.Listener.Close()) }

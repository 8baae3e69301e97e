// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package agent

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// A socket of systemd that is none of unix is refused at the start: its first client was a panic.
func TestTCPSocketOfSystemd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := unixListener(f); err == nil {
		t.Errorf("it is served: %v", got.Addr())
	}
}

// A program that keeps the lock of the directory keeps no agent from its socket.
func TestDirOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		defer lockDir(dir)()
		l, err := (&agent{o: &options{listen: "unix:" + filepath.Join(dir, "s")}}).socket()
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	})
}

// A path that no socket has is refused with the bound.
func TestLongPath(t *testing.T) {
	l, err := (&agent{o: &options{listen: "unix:" + t.TempDir() + strings.Repeat("/x", 60)}}).socket()
	if err == nil {
		t.Fatal(l.Close())
	}
	if !strings.Contains(err.Error(), "less than") {
		t.Error(err)
	}
}

// Of several agents that find the socket of a killed one, one has its path in the end. In the bubble no agent gives up its turn while
// another one works, however slow the machine is.
func TestStaleSocketIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		for range 200 {
			stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				t.Fatal(err)
			}
			stale.SetUnlinkOnClose(false)
			stale.Close()
			got := make(chan net.Listener, 4)
			for range cap(got) {
				go func() {
					l, _ := (&agent{o: &options{listen: "unix:" + path}}).socket()
					got <- l
				}()
			}
			var all []net.Listener
			for range cap(got) {
				if l := <-got; l != nil {
					all = append(all, l)
				}
			}
			if len(all) != 1 {
				t.Fatalf("%d agents have it", len(all))
			}
			all[0].Close()
		}
	})
}

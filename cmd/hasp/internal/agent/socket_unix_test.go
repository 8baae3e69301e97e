// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package agent

import (
	"net"
	"testing"
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

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net"
	"testing"
)

// Nobody returns a loopback host:port that refuses connections until the test
// ends. It is this end of an established connection, so that the system gives
// the port to no other process meanwhile, as it might a closed one.
func Nobody(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.LocalAddr().String()
}

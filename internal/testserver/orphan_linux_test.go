// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const orphanEnv = "HASP_TESTSERVER_ORPHAN"

// A test binary that is killed, as by a time limit, leaves no server behind.
func TestServerDiesWithTheTestBinary(t *testing.T) {
	if os.Getenv(orphanEnv) != "" {
		fmt.Println(Redis(t).Addr())
		select {}
	}
	Require(t, "redis")
	dir, err := os.MkdirTemp("", "hasp-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) // what the killed binary could not remove

	cmd := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithTheTestBinary$")
	cmd.Env = append(os.Environ(), orphanEnv+"=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the other binary said %q: %v", addr, err)
	}
	c := dial(t, "tcp", strings.TrimSpace(addr))
	c.do("PING", "+PONG")

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.line(limit); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after its test binary was killed: %q, %v; want that the server is gone", got, err)
	}
	_ = cmd.Wait() // killed, as it should be
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// A run that names no TTL may stand still for as long as the agent's own lasts.
func TestAgentsTTL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	greetings := make(chan string, 2)
	go func() {
		defer close(greetings)
		for range cap(greetings) {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			greetings <- line
			fmt.Fprintln(c, `{"jsonrpc":"2.0","id":1,"result":{"ttl_ms":120000}}`)
		}
	}()
	from, err := dialAgent(&job{o: &options{agent: "unix:" + path}})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	l.Close()
	last := ""
	for last = range greetings { // the latest counts
	}
	if !strings.Contains(last, `"alive_ms":120000`) {
		t.Errorf("it greets with %s", last)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A server that another program turns into is the process that is known, also
// after a restart.
func TestServerUnderAnotherProgram(t *testing.T) {
	Require(t, "redis")
	s := RedisUnder(t, []string{"sh", "-c", `ulimit -S -t 86399 && exec "$0" "$@"`}, nil)
	for range 2 {
		of := func(file string) string {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.PID(), file))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if name := of("comm"); name != "redis-server\n" {
			t.Errorf("the process is %q", name)
		}
		if !strings.Contains(of("limits"), " 86399 ") {
			t.Error("it was not started by that program")
		}
		dial(t, "tcp", s.Addr()).do("PING", "+PONG")
		s.Restart()
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Rule: a program that has the clock sees each step of it, and nobody else does.
func TestClockIsStepped(t *testing.T) {
	t.Parallel()
	c := NewClock(t)
	for _, ahead := range []time.Duration{0, time.Hour, -30 * time.Minute} {
		c.Step(ahead)
		cmd := exec.Command("date", "+%s")
		cmd.Env = append(os.Environ(), c.Env()...)
		out, err := cmd.Output()
		if cmd.Process != nil {
			forgetClock(cmd.Process.Pid)
		}
		if err != nil {
			t.Fatal(err)
		}
		says, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Until(time.Unix(says, 0)) - ahead; off.Abs() > 5*time.Minute {
			t.Errorf("ahead by %v the clock is %v off", ahead, off)
		}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"
)

// The test's program is the example, too.
func TestMain(m *testing.M) {
	if os.Getenv("HASP_EXAMPLE") == "" {
		os.Exit(m.Run())
	}
	main()
}

// The second process campaigns while the first leads, and leads once SIGTERM had the first step down.
func TestStepsDown(t *testing.T) {
	t.Setenv("HASP_EXAMPLE", "yes")
	t.Setenv("HASP_STORE", "sqlite:"+t.TempDir()+"/locks.db")
	r, w, err := os.Pipe() // of both, so that their lines come in the order of time
	first, second := exec.CommandContext(t.Context(), os.Args[0]), exec.CommandContext(t.Context(), os.Args[0])
	first.Stderr, second.Stderr = w, w
	lines, line := bufio.NewScanner(r), regexp.MustCompile(`^(\d+) .* (campaigns|leads|steps down)`)
	want := func(c *exec.Cmd, what string) {
		var found []string
		for found == nil && lines.Scan() {
			found = line.FindStringSubmatch(lines.Text())
		}
		if found == nil || found[1] != strconv.Itoa(c.Process.Pid) || found[2] != what {
			t.Fatalf("%s, want %d %s", lines.Text(), c.Process.Pid, what)
		}
	}
	err = errors.Join(err, first.Start())
	want(first, "campaigns")
	want(first, "leads")
	err = errors.Join(err, second.Start(), w.Close()) // the lines end when the processes do
	want(second, "campaigns")
	_ = first.Process.Signal(syscall.SIGTERM)
	want(first, "steps down")
	want(second, "leads")
	_ = second.Process.Signal(syscall.SIGTERM)
	want(second, "steps down")
	if err = errors.Join(err, first.Wait(), second.Wait()); err != nil {
		t.Error(err)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

func stop(flags *flag.FlagSet) func(*tb) []row {
	url := flags.String("store", "", "sqlite:PATH or redis://...; empty: a SQLite file and a Redis of its own")
	ttl := flags.Duration("ttl", 2*time.Second, "TTL of the lock")
	return func(t *tb) []row {
		dir := folder(t)
		hasp := build(t, dir)
		var rows []row
		for _, s := range stores(t, *url, dir) {
			rows = append(rows, stopOne(t, hasp, s, *ttl)...)
		}
		return rows
	}
}

// stopOne stops a hasp that holds a key for longer than the TTL, until another has the
// key, and resumes it.
func stopOne(t *tb, hasp string, s store, ttl time.Duration) []row {
	run := func(script string) *exec.Cmd {
		return exec.CommandContext(t.ctx, hasp, "run", "--store", s.url, "--ttl", ttl.String(), "show-stop", "--", "sh", "-c", script)
	}
	holder := run(`echo "$HASP_FENCE $$"; exec sleep 1000`)
	said := new(bytes.Buffer)
	holder.Stderr = said
	out, err := holder.StdoutPipe()
	t.must(err)
	t.must(holder.Start())
	t.Cleanup(func() { _ = holder.Process.Kill() }) // it has ended when all went well
	var before, after uint64
	var child int
	first, err := bufio.NewReader(out).ReadString('\n')
	t.must(err)
	_, err = fmt.Sscan(first, &before, &child)
	t.must(err)

	t.must(holder.Process.Signal(syscall.SIGSTOP))
	start := time.Now()
	answer, err := run(`echo "$HASP_FENCE"`).Output()
	t.must(err)
	waited := time.Since(start)
	_, err = fmt.Sscan(string(answer), &after)
	t.must(err)
	childRan := syscall.Kill(child, 0) == nil
	start = time.Now()
	t.must(holder.Process.Signal(syscall.SIGCONT))
	err = holder.Wait()
	took := time.Since(start)
	code := holder.ProcessState.ExitCode()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.must(err)
	}
	gone := errors.Is(syscall.Kill(child, 0), syscall.ESRCH)
	t.Logf("%s: the child ran on while hasp was stopped: %v; hasp said: %s", s.kind, childRan, strings.TrimSpace(said.String()))
	return []row{
		judged(code == 124, s.kind+": exit code after a stop beyond the TTL", "124", "%d, %v after CONT", code, took.Round(time.Millisecond)),
		judged(gone, s.kind+": … its child", "ended", "%s", map[bool]string{true: "ended", false: "runs"}[gone]),
		judged(before < after, s.kind+": … its fence", "smaller than the new holder's", "%d, then %d", before, after),
		figure(s.kind+": … the waiter had run after", "%v (TTL %v)", waited.Round(time.Millisecond), ttl),
	}
}

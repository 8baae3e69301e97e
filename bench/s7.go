// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// s7 measures whole commands, as in a crontab.
var s7 = scenario{
	name:  "s7",
	title: "true, run under a lock by a command",
	about: "A whole process: it starts, locks an uncontended key, runs true, releases the key and ends. One command after another; " +
		"CPU is user and system time of the command and of true, memory the most that the command itself had in RAM by the time it ran true.",
	metrics: []metric{
		{name: "p50", head: "p50", unit: seconds, better: lower, main: true},
		{name: "p99", head: "p99", unit: seconds, better: lower},
		{name: "cpu", head: "CPU", unit: seconds, better: lower},
		{name: "memory", head: "memory", unit: bytes, better: lower},
	},
	variants: func(quick bool) []variant {
		if quick {
			return []variant{{name: "10 runs", n: 10}}
		}
		return []variant{{name: "40 runs", n: 40}}
	},
	field: func(e *env, _ []*peer) []*peer {
		return slices.DeleteFunc(available(e, slices.Clone(commandPeers)), func(p *peer) bool { return !commands[p.name].installed() })
	},
	run: runCommands,
}

// command is a program that locks.
type command struct {
	program string // "": hasp, which is built
	// args are those before the command to run.
	args func(e *env, dir string) []string
}

var commands = map[string]command{
	baseline: {"", func(e *env, _ string) []string { return []string{"run", "--store", "redis://" + e.Redis[0], "k", "--"} }},
	"hasp (SQLite)": {"", func(_ *env, dir string) []string {
		return []string{"run", "--store", "sqlite:" + dir + "/locks.db", "k", "--"}
	}},
	"flock": {"flock", func(_ *env, dir string) []string { return []string{filepath.Join(dir, "file")} }},
	"etcdctl lock": {"etcdctl", func(e *env, _ string) []string {
		return []string{"--endpoints", e.Etcd, "lock", "--ttl", "30", "k", "--"}
	}},
	"no lock": {"env", func(*env, string) []string { return nil }},
}

var commandPeers = []*peer{
	{name: baseline, config: "hasp run k -- true, on Redis, built with go build; TTL 30 s"},
	{name: "hasp (SQLite)", config: "the same on its embedded engine: a file in the folder for temporary files, each change synced to the disk"},
	{name: "flock", config: "flock FILE true, of util-linux: the kernel's lock, for this machine only; no TTL, no fence, no queue"},
	{name: "etcdctl lock", etcd: true, config: "etcdctl lock --ttl 30 k true, over etcd's API 3"},
	{name: "no lock", local: true, config: "env true: what it costs to start two programs"},
}

// installed reports whether the program is there; hasp is built when it is needed.
func (c command) installed() bool {
	_, err := exec.LookPath(c.program)
	return c.program == "" || err == nil
}

// commandDirs has a func() (dir string, err error) for each *env: a folder with
// hasp in it.
var commandDirs sync.Map

func commandDir(e *env) (dir string, err error) {
	f, _ := commandDirs.LoadOrStore(e, sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "hasp-bench-")
		if err != nil {
			return "", err
		}
		e.t.Cleanup(func() { _ = os.RemoveAll(dir) }) // in the folder for such things
		build := exec.CommandContext(e.t.Context(), "go", "build", "-o", filepath.Join(dir, "hasp"), "github.com/hasplock/hasp/cmd/hasp")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build the command: %w\n%s", err, out)
		}
		return dir, nil
	}))
	return f.(func() (string, error))()
}

func runCommands(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	dir, err := commandDir(e) // built outside the limit: without Go's cache that takes minutes
	if err != nil {
		return nil, err
	}
	ctx, cancel := limited(ctx, 2*time.Minute)
	defer cancel()
	c := commands[p.name]
	locked := func(work ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, c.program, slices.Concat(c.args(e, dir), work)...)
		if c.program == "" {
			cmd = exec.CommandContext(ctx, filepath.Join(dir, "hasp"), cmd.Args[1:]...)
		}
		cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
		return cmd
	}
	if !p.local {
		if err := inTurn(locked, dir); err != nil {
			return nil, err
		}
	}
	var walls hist
	var cpu time.Duration
	for range v.n {
		cmd := locked("true")
		start := time.Now()
		out, err := cmd.CombinedOutput()
		walls.add(time.Since(start))
		if err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	f := figures{
		"p50": walls.quantile(0.50),
		"p99": walls.quantile(0.99),
		"cpu": cpu.Seconds() / float64(v.n),
	}
	if p.local {
		return f, nil
	}
	f["memory"], err = memory(locked)
	return f, err
}

// inTurn fails unless some commands that are started at once run one after
// the other.
func inTurn(locked func(...string) *exec.Cmd, dir string) error {
	const side = 4
	var all sync.WaitGroup
	failed := make(chan error, side)
	for range side {
		all.Go(func() {
			// mkdir fails when another is inside.
			cmd := locked("sh", "-c", `mkdir "$0" && sleep 0.02 && rmdir "$0"`, filepath.Join(dir, "inside"))
			if out, err := cmd.CombinedOutput(); err != nil {
				failed <- fmt.Errorf("not in turn: %v: %w\n%s", cmd.Args, err, out)
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// memory returns the most RAM that the locking process had, in bytes. Its
// command asks, since what wait4 says of a child begins with what its parent
// had when it forked.
func memory(locked func(...string) *exec.Cmd) (float64, error) {
	cmd := locked("sh", "-c", "grep VmHWM /proc/$PPID/status")
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			n, err := strconv.ParseFloat(f[1], 64)
			return n * 1024, err
		}
	}
	return 0, fmt.Errorf("%v printed %q", cmd.Args, out)
}

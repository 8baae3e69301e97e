// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// s7 measures whole commands, as in a crontab.
var s7 = scenario{
	name: "s7",
	metrics: []metric{
		{"p50", "p50", seconds, lower, true},
		{"p99", "p99", seconds, lower, false},
		{"cpu", "CPU", seconds, lower, false},
		{"memory", "memory", bytes, lower, false},
	},
	variants: counts("run", 40),
	quick:    counts("run", 10),
	own:      commandPeers,
	limit:    2 * time.Minute,
	run:      runCommands,
}

var commandPeers = []*peer{
	{name: baseline, config: "hasp run k -- true, on Redis, built with go build; TTL 30 s",
		command: func(e *env, dir string) []string {
			return []string{filepath.Join(dir, "hasp"), "run", "--store", "redis://" + e.Redis[0], "k", "--"}
		}},
	{name: "hasp (SQLite)", config: "the same on its embedded engine: a file in the folder for temporary files, each change synced to the disk",
		command: func(_ *env, dir string) []string {
			return []string{filepath.Join(dir, "hasp"), "run", "--store", "sqlite:" + dir + "/locks.db", "k", "--"}
		}},
	{name: "flock", config: "flock FILE true, of util-linux: the kernel's lock, for this machine only; no TTL, no fence, no queue",
		command: func(_ *env, dir string) []string { return []string{"flock", filepath.Join(dir, "file")} }},
	{name: "etcdctl lock", on: onEtcd, config: "etcdctl lock --ttl 30 k true, over etcd's API 3",
		command: func(e *env, _ string) []string {
			return []string{"etcdctl", "--endpoints", e.Etcd, "lock", "--ttl", "30", "k", "--"}
		}},
	{name: "no lock", on: inProcess, config: "env true: what it costs to start two programs",
		command: func(*env, string) []string { return []string{"env"} }},
}

// build makes a folder with hasp in it.
func (e *env) build(ctx context.Context) (err error) {
	if e.dir, err = os.MkdirTemp("", "hasp-bench-"); err != nil {
		return err
	}
	e.t.Cleanup(func() { _ = os.RemoveAll(e.dir) }) // in the folder for such things
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(e.dir, "hasp"), "github.com/hasplock/hasp/cmd/hasp")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the command: %w\n%s", err, out)
	}
	return nil
}

func runCommands(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	locked := func(work ...string) *exec.Cmd {
		line := append(p.command(e, e.dir), work...)
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
		return cmd
	}
	if p.on != inProcess {
		if err := inTurn(locked, e.dir); err != nil {
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
	if p.on == inProcess {
		return f, nil
	}
	var err error
	f["memory"], err = memory(locked)
	return f, err
}

// inTurn fails unless some commands that are started at once run one after
// the other.
func inTurn(locked func(...string) *exec.Cmd, dir string) error {
	return many(4, func(int) error {
		// mkdir fails when another is inside.
		cmd := locked("sh", "-c", `mkdir "$0" && sleep 0.02 && rmdir "$0"`, filepath.Join(dir, "inside"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("not in turn: %v: %w\n%s", cmd.Args, err, out)
		}
		return nil
	})
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
	n := sum(string(out), `VmHWM:\s+(\d+) kB`)
	if math.IsNaN(n) {
		return 0, fmt.Errorf("%v printed %q", cmd.Args, out)
	}
	return 1024 * n, nil
}

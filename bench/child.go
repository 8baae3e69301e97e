// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// task is what a child process does: this program with the arguments "child" and the task as JSON.
type task struct {
	Do   string // of children
	Peer string
	To   target
	Key  string
}

// children are what a child process can do with a client. The process ends when the function returns; most of them wait to be killed.
var children = map[string]func(ctx context.Context, l locker, key string) error{"hold": holdInChild, "contend": contendInChild}

// runChild does a task in this process.
func runChild(ctx context.Context, arg string) error {
	var t task
	if err := json.Unmarshal([]byte(arg), &t); err != nil {
		return err
	}
	known := peers
	if t.To.Dir != "" {
		known = filePeers
	}
	i := slices.IndexFunc(known, func(p *peer) bool { return p.name == t.Peer })
	if i < 0 || children[t.Do] == nil {
		return fmt.Errorf("there is no task %q for a peer %q", t.Do, t.Peer)
	}
	l, err := known[i].open(ctx, t.To)
	if err != nil {
		return err
	}
	return children[t.Do](ctx, l, t.Key)
}

// process is a child process.
type process struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// start starts a child process, which ends with ctx.
func (t task) start(ctx context.Context) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	c := &process{cmd: exec.CommandContext(ctx, self, "child", string(arg))}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil { // it ends when this process does
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

// expect waits for a line.
func (c *process) expect(want string) error {
	said, err := c.out.ReadString('\n')
	if said = strings.TrimSpace(said); said != want {
		return fmt.Errorf("the child process said %q, not %q: %w", said, want, err)
	}
	return err
}

// kill kills the process and returns once it is gone. Twice is harmless.
func (c *process) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the child process: %w", err)
	}
	_ = c.cmd.Wait() // it was killed
	return nil
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqldriver

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: as TestFailover, of the command: none ends with an error, and of two electors one leads.
func TestFailoverOfCommands(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "the command is built, and fails over")
	hasp := filepath.Join(t.TempDir(), "hasp")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", hasp, ".")
	build.Dir = "../cmd/hasp"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, start := range pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			commandsTurn(t, p, func(args ...string) *command { return startCommand(t, hasp, p.url(), args) })
		})
	}
}

// url is what the command calls a database.
func (d database) url() string {
	if d.postgres() {
		return strings.Replace(d.dsn, "search_path=", "options=-csearch_path%3D", 1)
	}
	return "mysql://" + strings.NewReplacer("tcp(", "", ")", "").Replace(d.dsn)
}

func commandsTurn(t *testing.T, p pair, hasp func(args ...string) *command) {
	const many = 20
	lost := stall.Watch(t)
	key := func(i int) string { return fmt.Sprint("k", i) }
	var holders, waiters, electors []*command
	for i := range many {
		holders = append(holders, hasp("run", "--ttl", "5m", key(i), "--", "sh", "-c", "echo has it; cat"))
	}
	for range 2 {
		electors = append(electors, hasp("elect", "leader", "--", "sh", "-c", "echo leads; sleep 1000"))
	}
	for _, h := range holders {
		h.says("has it")
	}
	for i := range many {
		waiters = append(waiters, hasp("run", key(i), "--", "sh", "-c", `echo "has it$HASP_ABANDONED"`)) // 1: the lease before ended by itself
	}
	s := p.open(t)
	for _, k := range append([]string{"leader"}, keysOf(many, key)...) {
		waitFor(t, "somebody waits for "+k, func() bool {
			info, err := s.Inspect(t.Context(), k)
			return err == nil && info.Held && info.Waiters == 1
		})
	}
	must(t, s.Close())

	p.turn()
	for _, h := range holders[:many/2] {
		must(t, h.in.Close())
	}
	switched, stood := time.Now(), lost()
	p.address.Retarget(p.next)
	var worst time.Duration
	for i, w := range waiters {
		if i == many/2 {
			if worst = time.Since(switched); worst > handedOver+lost()-stood {
				t.Errorf("%d have their keys %v after the switch", i, worst)
			}
			for _, h := range holders[i:] {
				must(t, h.in.Close())
			}
		}
		w.says("has it")
	}
	for _, c := range append(holders, waiters...) {
		c.ends(0)
	}
	led := make(chan *command, 2)
	for _, e := range electors {
		go func() {
			e.says("leads")
			led <- e
		}()
	}
	for range electors {
		e := <-led
		must(t, e.cmd.Process.Signal(syscall.SIGTERM))
		e.ends(128 + int(syscall.SIGTERM))
	}
	t.Logf("granted %v after the switch", worst.Round(time.Millisecond))
}

func keysOf(n int, key func(i int) string) (keys []string) {
	for i := range n {
		keys = append(keys, key(i))
	}
	return keys
}

// command is one that runs.
type command struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	errors strings.Builder
}

func startCommand(t *testing.T, path, url string, args []string) *command {
	t.Helper()
	c := &command{t: t, cmd: exec.CommandContext(t.Context(), path, args...)}
	c.cmd.Env = append(c.cmd.Environ(), "HASP_STORE="+url)
	c.cmd.Stderr = &c.errors
	in, err := c.cmd.StdinPipe()
	must(t, err)
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	c.in, c.out = in, bufio.NewScanner(out)
	must(t, c.cmd.Start())
	return c
}

// says waits for a line.
func (c *command) says(line string) {
	if !c.out.Scan() {
		c.ends(0)
	}
	if c.out.Text() != line {
		c.t.Errorf("%v says %q, want %q", c.cmd.Args, c.out.Text(), line)
	}
}

// ends waits for its end.
func (c *command) ends(code int) {
	c.t.Helper()
	for c.out.Scan() {
	}
	if _ = c.cmd.Wait(); c.cmd.ProcessState.ExitCode() != code {
		c.t.Errorf("%v: status %d, want %d:\n%s", c.cmd.Args, c.cmd.ProcessState.ExitCode(), code, c.errors.String())
	}
}

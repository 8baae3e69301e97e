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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// s12 is processes that contend for one file.
var s12 = scenario{
	name:  "s12",
	title: "one hot key in a file, processes of one machine, held for 1 ms",
	about: "Eight processes with a lock in one file between them: each locks the one key, holds it for 1 ms and releases it, over and over, for two seconds. " +
		"Waits, handoffs and fairness are counted as in S2, with processes in place of clients. flock(2) lets a process that has just released take " +
		"the lock again, past those that wait, and keeps no order.",
	metrics: slices.DeleteFunc(slices.Clone(contended), func(m metric) bool { return m.name == "commands" || m.name == "p50" }),
	variants: func(bool) []variant {
		return []variant{{"8 processes", 8}}
	},
	field: func(*env, []*peer) []*peer { return slices.Clone(filePeers) },
	run:   runProcesses,
}

func init() { children["contend"] = contendInChild }

// part is what one process did.
type part struct {
	Waits    []float64 // seconds
	Grants   int
	Handoffs int
	Err      string
}

// contendInChild contends between two lines of its standard input, and prints its part. args are the peer and the target.
func contendInChild(ctx context.Context, args []string) error {
	var to target
	if err := json.Unmarshal([]byte(args[1]), &to); err != nil {
		return err
	}
	i := slices.IndexFunc(filePeers, func(p *peer) bool { return p.name == args[0] })
	l, err := filePeers[i].open(ctx, to)
	if err != nil {
		return err
	}
	defer l.Close()
	unlock, err := l.Lock(ctx, "warm/"+strconv.Itoa(os.Getpid()))
	if err == nil {
		err = unlock(ctx)
	}
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	waits, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = in.ReadString('\n')
		stop()
	}()
	var p part
	if err := p.contend(ctx, waits, l, to.Dir); err != nil {
		p.Err = err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(p)
}

// contend locks and releases until waits ends.
func (p *part) contend(ctx, waits context.Context, l locker, dir string) error {
	g, err := openFileGuard(dir)
	if err != nil {
		return err
	}
	defer g.file.Close()
	for !ended(waits) {
		begin := time.Now()
		unlock, err := l.Lock(waits, hotKey)
		p.Waits = append(p.Waits, time.Since(begin).Seconds())
		over := ended(waits)
		if err != nil && over {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		passed, err := g.enter()
		if err != nil {
			return err
		}
		if !over {
			time.Sleep(time.Millisecond)
		}
		if err := errors.Join(g.leave(), unlock(ctx)); err != nil {
			return err
		}
		if !over {
			p.Grants++
		}
		if passed && !over {
			p.Handoffs++
		}
	}
	return nil
}

// fileGuard is a guard between processes: a file with the number of the process that is inside, and of the last one.
type fileGuard struct{ file *os.File }

func openFileGuard(dir string) (fileGuard, error) {
	f, err := os.OpenFile(filepath.Join(dir, "guard"), os.O_RDWR|os.O_CREATE, 0o600)
	return fileGuard{f}, err
}

const guardText = "%010d %010d" // inside, last

func (g fileGuard) read() (inside, last int, err error) {
	b := make([]byte, 21)
	n, err := g.file.ReadAt(b, 0)
	if n == 0 && errors.Is(err, io.EOF) { // no process was inside yet
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscanf(string(b), guardText, &inside, &last)
	return inside, last, err
}

// enter reports whether another process was the last one.
func (g fileGuard) enter() (passed bool, err error) {
	inside, last, err := g.read()
	if err == nil && inside != 0 {
		err = errTwoHolders
	}
	if err != nil {
		return false, err
	}
	me := os.Getpid()
	_, err = g.file.WriteAt(fmt.Appendf(nil, guardText, me, last), 0)
	return last != me, err
}

func (g fileGuard) leave() error {
	inside, _, err := g.read()
	me := os.Getpid()
	if err == nil && inside != me {
		err = errTwoHolders
	}
	if err != nil {
		return err
	}
	_, err = g.file.WriteAt(fmt.Appendf(nil, guardText, 0, me), 0)
	return err
}

// process is a child that contends.
type process struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func startContender(ctx context.Context, p *peer, to target) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	where, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	c := &process{cmd: exec.CommandContext(ctx, self, "child", "contend", p.name, string(where))}
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

// says waits for a line.
func (c *process) says(want string) error {
	said, err := c.out.ReadString('\n')
	if err == nil && strings.TrimSpace(said) != want {
		err = fmt.Errorf("it said %q", said)
	}
	return err
}

// part waits for what it did.
func (c *process) part() (p part, err error) {
	if err := json.NewDecoder(c.out).Decode(&p); err != nil {
		return p, err
	}
	if p.Err != "" {
		return p, errors.New(p.Err)
	}
	return p, c.cmd.Wait()
}

func runProcesses(ctx context.Context, e *env, v variant, p *peer) (f figures, err error) {
	ctx, cancel := limited(ctx, time.Minute)
	defer cancel() // ends the children
	to := e.target
	if to.Dir, err = os.MkdirTemp("", "hasp-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(to.Dir)
	var all []*process
	for range v.n {
		c, err := startContender(ctx, p, to)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for _, c := range all {
		if err := c.says("ready"); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	for _, c := range all {
		if _, err := io.WriteString(c.in, "begin\n"); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, e.lasts(2*time.Second)); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	for _, c := range all {
		if _, err := io.WriteString(c.in, "end\n"); err != nil {
			return nil, err
		}
	}
	var parts []part
	for _, c := range all {
		done, err := c.part()
		if err != nil {
			return nil, err
		}
		parts = append(parts, done)
	}
	return together(parts, took), nil
}

// together are the figures of all processes.
func together(parts []part, took time.Duration) figures {
	var waits hist
	var grants, handoffs, most, never int
	for _, p := range parts {
		for _, w := range p.Waits {
			waits.add(time.Duration(w * float64(time.Second)))
		}
		grants, handoffs, most = grants+p.Grants, handoffs+p.Handoffs, max(most, p.Grants)
		if p.Grants == 0 {
			never++
		}
	}
	return figures{
		"handoffs": float64(handoffs) / took.Seconds(),
		"grants":   float64(grants) / took.Seconds(),
		"p99":      waits.quantile(0.99),
		"longest":  waits.longest.Seconds(),
		"fairness": float64(most) * float64(len(parts)) / float64(max(grants, 1)),
		"never":    float64(never),
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
)

// The table of docs/command.md: how a command can end, and what it is.

// worker works until it is ended; its argument tells it from those of other tests.
const worker = `sh -c 'read x <>stop' "$TOKEN" >/dev/null 2>&1`

// kinds are commands that start a worker, and then wait.
var kinds = []struct{ name, script string }{
	{"plain", `echo $$ >ready; exec ` + worker},
	{"group", `setsid ` + worker + ` & echo $$ >ready; read x <gate`},
	{"daemon", `(setsid ` + worker + ` &); echo $$ >ready; read x <gate`},
	{"setuid", `"$TOKEN/rootly" >/dev/null 2>&1 & echo $$ >ready; read x <gate`},
	{"pidns", `unshare -pf ` + worker + ` & echo $$ >ready; read x <gate`},
	{"stopped", strings.Replace(worker, "'", "'kill -STOP $$; ", 1) + ` & echo $$ >ready; read x <gate`},
}

// What a worker may be when the next holder begins.
const (
	isGone  = iota
	isNamed // it works on, and hasp said so before
	isThere // it works on, as the page says
	isSoon  // the key is taken away at once: gone when hasp is
)

var ways = []struct {
	name  string
	flags []string
	want  [6]int // of each kind
}{
	{"exits", []string{"--ttl", "1h"}, [6]int{isGone, isNamed, isNamed, isNamed, isNamed, isNamed}},
	{"TERM", []string{"--ttl", "1h", "--grace", "15s"}, [6]int{isGone, isGone, isGone, isNamed, isNamed, isGone}},
	{"TERM to its group", []string{"--ttl", "1h", "--grace", "15s"}, [6]int{isGone, isGone, isGone, isGone, isNamed, isGone}}, // root sends it
	{"kill -9 of hasp", []string{"--ttl", ttl}, [6]int{isGone, isThere, isThere, isThere, isThere, isGone}},                   // an orphaned group that is stopped gets HUP
	{"loss", []string{"--ttl", ttl}, [6]int{isGone, isGone, isGone, isNamed, isGone, isGone}},
	{"break", nil, [6]int{isSoon, isSoon, isSoon, isNamed, isSoon, isSoon}},
	{"max-hold", []string{"--max-hold", "15s"}, [6]int{isGone, isGone, isGone, isNamed, isGone, isGone}},
	{"asleep", []string{"--ttl", ttl}, [6]int{isSoon, isSoon, isSoon, isNamed, isSoon, isSoon}},
}

func TestEveryEndOfEveryCommand(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make setuid programs and namespaces of process ids")
	}
	_, exe, _ := onFile(t)
	addr := testserver.Redis(t).Addr()
	for _, way := range ways {
		for i, kind := range kinds {
			t.Run(way.name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				c := &cell{newSandbox(t, "redis://"+addr), way.name, kind.name, exe, strings.ReplaceAll(t.Name(), " ", "-"), nil}
				c.try(append(way.flags, c.key, "--", "sh", "-c", kind.script), way.want[i])
			})
		}
	}
}

// cell is a cell of the table.
type cell struct {
	*sandbox
	way, kind, exe, key string
	proxy               *faultproxy.Proxy
}

func (c *cell) try(command []string, want int) {
	t := c.t
	store := c.store
	if c.way == "loss" {
		c.proxy = faultproxy.New(t, strings.TrimPrefix(c.store, "redis://"))
		store = "redis://" + c.proxy.Addr()
	}
	for _, name := range []string{"gate", "hold", "stop"} {
		c.fifo(name)
	}
	opened(t, c.dir, 0o777)
	p := c.haspWith(func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "TOKEN="+c.dir, "HASP_STORE="+store)
		if c.kind == "setuid" {
			program, err := setuid()
			must(t, err)
			must(t, os.Link(program, filepath.Join(c.dir, "rootly")))
			must(t, os.Chmod(filepath.Join(c.dir, "gate"), 0o666))
			cmd.Path = c.exe
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: oneUser, Gid: oneUser}}
		}
	}, append([]string{"run", "--grace", "1s"}, command...)...)
	t.Cleanup(func() { c.signal(syscall.SIGKILL) })
	c.read("ready")
	if err := eventually(func() bool {
		w := c.workers()
		return len(w) > 0 && (c.kind != "stopped" || state(w[0]) == "T") && (c.kind != "setuid" || ofRoot(w[0]))
	}); err != nil {
		t.Fatalf("there is no worker: %v; hasp said:\n%s", err, p.err.String())
	}
	c.end(p)
	next := c.hasp("run", "--ttl", "30s", c.key, "--", "sh", "-c", "echo >next; read x <hold")
	c.read("next")
	beside, said := c.workers(), p.err.String()
	if c.way == "asleep" {
		c.signal(syscall.SIGCONT)
		p.signal(syscall.SIGCONT)
	}
	if want == isSoon || c.way == "break" || c.way == "asleep" {
		p.ends(124)
		beside, said = c.workers(), p.err.String()
	}
	c.open("hold")
	next.ends(0)
	hungUp := c.way == "exits" && c.kind == "stopped" // its group is orphaned when hasp ends, too
	if works := want == isNamed || want == isThere; works != (len(beside) > 0) && !hungUp {
		t.Errorf("beside the next holder there are %d workers; hasp said:\n%s", len(beside), said)
	}
	if want == isNamed {
		matches(t, said, `left these processes running.*pid|may not end these processes.*another user's`)
	}
}

// end ends the command in the cell's way.
func (c *cell) end(p *proc) {
	switch c.way {
	case "exits":
		if c.kind == "plain" {
			c.open("stop")
		} else {
			c.open("gate")
		}
	case "TERM":
		p.signal(syscall.SIGTERM)
	case "TERM to its group":
		must(c.t, syscall.Kill(-number(c.t, c.read("ready")), syscall.SIGTERM))
	case "kill -9 of hasp":
		p.signal(syscall.SIGKILL)
	case "loss":
		c.proxy.Refuse()
		c.proxy.CloseAll()
	case "break":
		out := c.hasp("show", c.key, "-o", "json")
		out.ends(0)
		_, owner, _ := strings.Cut(out.out.String(), `"owner":"`)
		owner, _, _ = strings.Cut(owner, `"`)
		c.exits(0, "break", c.key, "--owner", owner, "--yes")
	case "asleep":
		p.signal(syscall.SIGSTOP)
		c.signal(syscall.SIGSTOP)
	}
}

// workers are the live processes that have the cell's folder as an argument.
func (c *cell) workers() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		text, _ := os.ReadFile(name)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		words := bytes.Split(text, []byte{0})
		if bytes.Contains(text, []byte(c.dir)) && !bytes.Contains(words[0], []byte("unshare")) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ofRoot says whether a process is root's alone.
func ofRoot(pid int) bool {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return bytes.Contains(text, []byte("\nUid:\t0\t0\t0\t"))
}

func (c *cell) signal(sig syscall.Signal) {
	for _, pid := range c.workers() {
		_ = syscall.Kill(pid, sig)
	}
}

func init() { commands["rootly"] = rootly }

// setuid makes rootly's program, once. It is not written here: what another test starts meanwhile would have the file
// open, and the kernel executes no program that a process has open for writing.
var setuid = sync.OnceValues(func() (path string, err error) {
	self, err := exec.LookPath("rootly")
	if err != nil {
		return "", err
	}
	return self + ".setuid", exec.Command("install", "-m", "4755", self, self+".setuid").Run()
})

// rootly is a setuid program that works on as root alone, as what sudo starts does.
func rootly() {
	if syscall.Setgid(0) != nil || syscall.Setuid(0) != nil {
		os.Exit(1)
	}
	time.Sleep(time.Hour)
}

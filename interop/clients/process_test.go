// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// soon bounds what must happen, far above what it takes.
const soon = time.Minute

// program is a peer that can be started.
type program struct {
	name  string
	needs []string // files; without them the tests are skipped, unless HASP_TEST_REQUIRE has the name
	line  func(t testing.TB) []string
}

var (
	haspPeer = &program{name: "hasp", line: built("hasp")}
	goPeer   = &program{name: "golocks", line: built("golocks")}
	java     = &program{
		name:  "redisson",
		needs: []string{"redisson/target/Peer.class"},
		line:  fixed("java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", "redisson/target:redisson/target/dependency/*", "Peer"),
	}
	python = &program{
		name:  "python",
		needs: []string{"python/.venv/bin/python"},
		line:  fixed("python/.venv/bin/python", "python/peer.py"),
	}
	node = &program{
		name:  "node",
		needs: []string{"node/.modules/node_modules/redlock"},
		line:  fixed("env", "NODE_PATH=node/.modules/node_modules", "node", "node/peer.js"),
	}
)

func fixed(line ...string) func(testing.TB) []string {
	return func(testing.TB) []string { return line }
}

// binaries is a folder for the programs in Go, which TestMain makes and removes.
var binaries string

// built is a program of ../peers, which the first test that needs it builds.
func built(name string) func(testing.TB) []string {
	build := sync.OnceValues(func() ([]byte, error) {
		return exec.Command("go", "build", "-o", filepath.Join(binaries, name), "../peers/"+name).CombinedOutput()
	})
	return func(t testing.TB) []string {
		t.Helper()
		if out, err := build(); err != nil {
			t.Fatalf("go build of %s: %v\n%s", name, err, out)
		}
		return []string{filepath.Join(binaries, name)}
	}
}

// peer is a program that runs.
type peer struct {
	testing.TB
	name string
	cmd  *exec.Cmd
	in   io.Writer
	over chan struct{} // closed when it says nothing more

	mu      sync.Mutex
	answers map[string]chan string // by thread
}

// start runs a program over deployments of Redis: see lines for how they are written.
func start(t testing.TB, p *program, ttl time.Duration, deployments ...string) *peer {
	t.Helper()
	for _, file := range p.needs {
		testserver.RequireFile(t, p.name, file)
	}
	line := append(p.line(t), append([]string{strconv.FormatInt(ttl.Milliseconds(), 10)}, deployments...)...)
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &peer{TB: t, name: p.name, cmd: cmd, in: in, over: make(chan struct{}), answers: make(map[string]chan string)}
	go func() {
		defer close(r.over)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			thread, text, _ := strings.Cut(lines.Text(), " ")
			r.thread(thread) <- text
		}
	}()
	t.Cleanup(func() { r.kill() })
	return r
}

// ready waits until it is connected.
func (p *peer) ready() *peer {
	p.Helper()
	p.says("-", "ready")
	return p
}

// kill ends the process with SIGKILL, however often it is called.
func (p *peer) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.over
	_ = p.cmd.Wait()
}

// stop has the process stand still until cont.
func (p *peer) stop() { p.signal(syscall.SIGSTOP) }

func (p *peer) cont() { p.signal(syscall.SIGCONT) }

func (p *peer) signal(s syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

func (p *peer) thread(name string) chan string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers[name] == nil {
		p.answers[name] = make(chan string, 100)
	}
	return p.answers[name]
}

// order has a thread do something.
func (p *peer) order(thread, format string, args ...any) {
	p.Helper()
	if _, err := fmt.Fprintf(p.in, thread+" "+format+"\n", args...); err != nil {
		p.Fatal(err)
	}
}

// answer waits for the answer to a thread's next order.
func (p *peer) answer(thread string) string { return p.within(thread, soon) }

func (p *peer) within(thread string, limit time.Duration) string {
	p.Helper()
	select {
	case got := <-p.thread(thread):
		return got
	case <-p.over:
		p.Fatalf("%s has ended", p.name)
	case <-time.After(limit):
		p.Fatalf("thread %s of %s does not answer", thread, p.name)
	}
	return ""
}

// says waits for an answer, which must begin with want, and returns the numbers that follow.
func (p *peer) says(thread, want string) []int64 {
	p.Helper()
	return p.numbers(thread, want, p.answer(thread))
}

func (p *peer) numbers(thread, want, got string) (all []int64) {
	p.Helper()
	rest, ok := strings.CutPrefix(got, want)
	if !ok {
		p.Fatalf("thread %s of %s says %q, want %q", thread, p.name, got, want)
	}
	for _, text := range strings.Fields(rest) {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// does is an order and its answer.
func (p *peer) does(thread, want, format string, args ...any) []int64 {
	p.Helper()
	p.order(thread, format, args...)
	return p.says(thread, want)
}

// quiet fails when a thread has answered.
func (p *peer) quiet(thread string) {
	p.Helper()
	select {
	case got := <-p.thread(thread):
		p.Fatalf("thread %s of %s says %q, but has to wait", thread, p.name, got)
	default:
	}
}

// wall is the clock of the answers, in microseconds.
func wall() int64 { return time.Now().UnixMicro() }

// since is the time from one instant of that clock to another.
func since(from, to int64) time.Duration { return time.Duration(to-from) * time.Microsecond }

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"context"
	"errors"
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

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/pipe"
)

const (
	soon    = time.Minute // bounds what must happen, far above what it takes
	forever = -1          // no bound of a wait
)

// program is a peer that can be started, with its TTL and deployments of Redis: "127.0.0.1:6379", or "cluster:127.0.0.1:7000,127.0.0.1:7001".
// It speaks the protocol of docs/protocol.md: hello, lock, release, and status, which is unsupported when a client cannot say. What is not
// hasp has a further parameter of lock, kind; and Java, whose locks belong to threads, thread, in which the lease is released, too.
type program struct {
	name  string
	needs []string // files; without them the tests are skipped, unless HASP_TEST_REQUIRE has the name
	line  func(kind string, ttl time.Duration, deployments []string) ([]string, error)
}

var (
	haspPeer = &program{name: "hasp", line: agent}
	goPeer   = &program{name: "golocks", line: func(_ string, ttl time.Duration, deployments []string) ([]string, error) {
		file, err := golocks()
		return append([]string{file, ttl.String()}, deployments...), err
	}}
	java = &program{
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

func fixed(line ...string) func(string, time.Duration, []string) ([]string, error) {
	return func(_ string, ttl time.Duration, deployments []string) ([]string, error) {
		return append(append(line[:len(line):len(line)], strconv.FormatInt(ttl.Milliseconds(), 10)), deployments...), nil
	}
}

// binaries is a folder for the programs in Go, which TestMain makes and removes.
var binaries string

var golocks, command = built("../peers/golocks"), built("../../cmd/hasp")

// built is a program of a folder, which the first test that needs it builds.
func built(folder string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		file := filepath.Join(binaries, filepath.Base(folder))
		out, err := exec.Command("go", "build", "-C", folder, "-o", file, ".").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("go build of %s: %w\n%s", folder, err, out)
		}
		return file, err
	})
}

// layouts are the URLs' parameters, by the kinds of locks that an agent with them has.
var layouts = map[string]string{
	"string": "prefix=", "strings": "prefix=", "lock": "layout=redisson", "multi": "layout=redisson",
	"fair": "layout=redisson&kind=fair", "fenced": "layout=redisson&kind=fenced",
	"read": "layout=redisson&kind=readwrite", "write": "layout=redisson&kind=readwrite",
}

// agent is the command's, for one kind of locks.
func agent(kind string, ttl time.Duration, deployments []string) ([]string, error) {
	file, err := command()
	url := "redis://" + deployments[0]
	if nodes, cluster := strings.CutPrefix(deployments[0], "cluster:"); cluster {
		url = "redis+cluster://" + nodes
	}
	return []string{file, "agent", "--stdio", "--ttl", ttl.String(), "--store", url + "?" + layouts[kind]}, err
}

// peer is a program that runs: one process, or one for each of hasp's layouts.
type peer struct {
	testing.TB
	*program
	ttl         time.Duration
	deployments []string

	mu        sync.Mutex
	processes map[string]*process // by layout
}

type process struct {
	*exec.Cmd
	*pipe.Client
}

// start runs a program. Agents begin with the first request for them, and others at once.
func start(t testing.TB, p *program, ttl time.Duration, deployments ...string) *peer {
	t.Helper()
	for _, file := range p.needs {
		testserver.RequireFile(t, p.name, file)
	}
	r := &peer{TB: t, program: p, ttl: ttl, deployments: deployments, processes: make(map[string]*process)}
	t.Cleanup(r.kill)
	if p != haspPeer {
		if _, err := r.process(""); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
	}
	return r
}

// process is the process of a peer that has a kind of locks.
func (p *peer) process(kind string) (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	layout := ""
	if p.program == haspPeer {
		layout = layouts[kind]
	}
	if r := p.processes[layout]; r != nil {
		return r, nil
	}
	line, err := p.line(kind, p.ttl, p.deployments)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.Context(), soon)
	defer cancel()
	client, err := pipe.NewClient(ctx, struct {
		io.ReadCloser
		io.Writer
	}{out, in}, "interop", 0)
	if err != nil {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		return nil, err
	}
	p.processes[layout] = &process{cmd, client}
	return p.processes[layout], nil
}

// kill ends the processes with SIGKILL, however often it is called.
func (p *peer) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.processes {
		_ = r.Process.Kill() // it may have ended
		_ = r.Wait()
	}
}

// stop has the processes stand still until cont.
func (p *peer) stop() { p.signal(syscall.SIGSTOP) }

func (p *peer) cont() { p.signal(syscall.SIGCONT) }

func (p *peer) signal(s syscall.Signal) {
	p.Helper()
	for _, r := range p.processes {
		if err := r.Process.Signal(s); err != nil {
			p.Fatal(err)
		}
	}
}

// params are those of lock.
type params struct {
	pipe.LockParams
	Kind   string `json:"kind"`
	Thread string `json:"thread"`
}

func (p params) String() string { return fmt.Sprintf("%s %v in thread %s", p.Kind, p.Keys, p.Thread) }

// lease is a lock that a peer was asked for.
type lease struct {
	*peer
	params
	process *process
	done    chan struct{} // closed with the answer, which is:
	pipe.Grant
	at  int64 // when it came
	err error
}

// asks has a thread ask for a lock, whose keys are divided by commas. set changes what it asks for.
func (p *peer) asks(thread, kind, keys string, wait time.Duration, set ...func(*params)) *lease {
	l := &lease{peer: p, params: params{Kind: kind, Thread: thread}, done: make(chan struct{})}
	l.LockParams.Keys = strings.Split(keys, ",")
	if ms := pipe.InMillis(wait); wait != forever {
		l.Wait = &ms
	}
	if kind == "read" {
		l.Mode = "shared"
	}
	for _, f := range set {
		f(&l.params)
	}
	if l.process, l.err = p.process(kind); l.err != nil {
		close(l.done)
		return l
	}
	go func() {
		defer close(l.done)
		l.err = l.process.Call(context.Background(), "lock", l.params, &l.Grant)
		l.at = wall()
	}()
	return l
}

// lasting is a lease that ends after a time.
func lasting(ttl time.Duration) func(*params) {
	return func(p *params) { p.TTL = pipe.InMillis(ttl) }
}

// answered waits for the answer.
func (l *lease) answered() error {
	l.Helper()
	select {
	case <-l.done:
	case <-time.After(soon):
		l.Fatalf("%s does not answer %v", l.name, l.params)
	}
	return l.err
}

// granted waits until the thread has the lock.
func (l *lease) granted() *lease {
	l.Helper()
	if err := l.answered(); err != nil {
		l.Fatalf("%s is asked for %v: %v", l.name, l.params, err)
	}
	return l
}

// quiet fails when there is an answer.
func (l *lease) quiet() {
	l.Helper()
	select {
	case <-l.done:
		l.Fatalf("%s answers %v (%v), but has to wait", l.name, l.params, l.err)
	default:
	}
}

// locks has a thread take a lock.
func (p *peer) locks(thread, kind, keys string, wait time.Duration, set ...func(*params)) *lease {
	p.Helper()
	return p.asks(thread, kind, keys, wait, set...).granted()
}

// refused has a thread try once for a lock that others hold.
func (p *peer) refused(thread, kind, keys string) {
	p.Helper()
	if err := p.asks(thread, kind, keys, 0).answered(); !errors.Is(err, hasp.ErrHeld) {
		p.Fatalf("%s tries for %s %s: %v, want that it is refused", p.name, kind, keys, err)
	}
}

// call sends a request about the lease, of its thread or another.
func (l *lease) call(method, thread string) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	return l.process.Call(ctx, method, map[string]string{"lease": l.Lease, "thread": thread}, nil)
}

// tells is what the client says of its lease, asked by a thread: ok, lost, or unknown.
func (l *lease) tells(method, thread, ok string) string {
	l.Helper()
	err := l.call(method, thread)
	switch {
	case err == nil:
		return ok
	case errors.Is(err, hasp.ErrLost):
		return "lost"
	case errors.Is(err, hasp.ErrUnsupported):
		return "unknown"
	}
	l.Fatalf("%s of %s, of %s: %v", method, l.params, l.name, err)
	return ""
}

// unlock returns when it was sent.
func (l *lease) unlock() (at int64) {
	l.Helper()
	at = wall()
	if err := l.call("release", l.Thread); err != nil {
		l.Fatalf("%s unlocks %v: %v", l.name, l.params, err)
	}
	return at
}

// under runs f while the lock is held.
func (p *peer) under(thread, kind, keys string, f func(l *lease) error) error {
	l := p.asks(thread, kind, keys, forever)
	if <-l.done; l.err != nil {
		return l.err
	}
	return errors.Join(f(l), l.call("release", thread))
}

// member is a thread of a peer.
type member struct {
	*peer
	thread string
}

// together has all do something side by side, n times each, or until the limit, and returns how long it took.
func together(t testing.TB, all []member, n int, limit time.Duration, do func(i int, m member) error) time.Duration {
	began := time.Now()
	var working sync.WaitGroup
	for i, m := range all {
		working.Go(func() {
			for k := 0; k < n && time.Since(began) < limit; k++ {
				if err := do(i, m); err != nil {
					t.Errorf("%s, thread %s: %v", m.name, m.thread, err)
					return
				}
			}
		})
	}
	working.Wait()
	return time.Since(began)
}

// wall is the clock of the answers, in microseconds.
func wall() int64 { return time.Now().UnixMicro() }

// since is the time from one instant of that clock to another.
func since(from, to int64) time.Duration { return time.Duration(to-from) * time.Microsecond }

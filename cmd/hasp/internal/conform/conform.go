// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package conform tries a client of hasp agent: it is both the program that uses the client, by way of an adapter, and the agent,
// which lies, is late, falls silent, and dies.
package conform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/jsonrpc"
	"github.com/hasplock/hasp/pipe"
)

// The bounds, far above what anything takes: of a case, of the whole, and how many cases are tried at once.
const (
	caseMost   = 20 * time.Second
	wholeMost  = time.Minute
	sideBySide = 6
)

// Result is what became of a case.
type Result struct {
	Name   string `json:"name"`
	Rule   string `json:"rule"`
	Broken string `json:"broken,omitempty"` // how; empty: it was kept
}

// Run tries a client by every case, the first one alone: without its answer to hello an adapter is none, and the others are left out.
// So are those for which there was no time, whose rule may be kept.
// The shell starts the adapter. stderr is the adapters'.
func Run(ctx context.Context, adapter string, stderr *os.File) []Result {
	ctx, cancel := context.WithTimeout(ctx, wholeMost)
	defer cancel()
	results := make([]Result, len(Cases))
	var mute bool
	results[0], mute = Cases[0].try(ctx, adapter, stderr)
	if mute {
		return results[:1]
	}
	var under sync.WaitGroup
	free := make(chan struct{}, sideBySide)
	for i := range Cases[1:] {
		free <- struct{}{}
		under.Go(func() {
			if r, _ := Cases[i+1].try(ctx, adapter, stderr); r.Broken == "" || ctx.Err() == nil {
				results[i+1] = r
			}
			<-free
		})
	}
	under.Wait()
	return slices.DeleteFunc(results, func(r Result) bool { return r.Name == "" })
}

// Case is one rule, and a script that tries it.
type Case struct {
	Name   string
	Rule   string
	script func(t *trial)

	silent bool // the agent answers no status but by the script
	odd    bool // the agent's hello has fields that no client knows
}

// Try tries a client by one case.
func (c *Case) Try(ctx context.Context, adapter string, stderr *os.File) Result {
	r, _ := c.try(ctx, adapter, stderr)
	return r
}

// try also says whether the adapter did not even answer hello.
func (c *Case) try(ctx context.Context, adapter string, stderr *os.File) (r Result, mute bool) {
	ctx, cancel := context.WithTimeout(ctx, caseMost)
	defer cancel()
	t := &trial{Case: c, ctx: ctx, asked: make(chan *request, 1000), notices: make(chan *request, 1000), mute: true}
	over := make(chan struct{})
	go func() { // as testing has it: fail ends the goroutine
		defer close(over)
		t.start(adapter, stderr)
		t.mute = false
		c.script(t)
	}()
	<-over
	t.end()
	return Result{c.Name, c.Rule, t.broken}, t.mute
}

// trial is a case under way.
type trial struct {
	*Case
	ctx     context.Context
	folder  string
	cmd     *exec.Cmd
	adapter *jsonrpc.Conn
	socket  net.Listener
	asked   chan *request // by the client of its agent
	notices chan *request // by the adapter of us
	broken  string
	mute    bool

	mu     sync.Mutex
	conns  []net.Conn // to the client
	strays []string   // connections that did not begin with hello
}

// fail ends the case: the rule is broken.
func (t *trial) fail(format string, args ...any) {
	t.broken = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// start starts the agent and the adapter, and greets that.
func (t *trial) start(adapter string, stderr *os.File) {
	var err error
	if t.folder, err = os.MkdirTemp("", "hasp"); err != nil {
		t.fail("no folder for the socket: %v", err)
	}
	path := filepath.Join(t.folder, "agent")
	if t.socket, err = net.Listen("unix", path); err != nil {
		t.fail("no socket: %v", err)
	}
	go t.listen()
	t.cmd = exec.Command("sh", "-c", adapter)
	t.cmd.Env, t.cmd.Stderr = append(os.Environ(), "HASP_AGENT=unix:"+path), stderr
	group(t.cmd)
	in, _ := t.cmd.StdinPipe() // fails of a command that was started
	out, _ := t.cmd.StdoutPipe()
	if err := t.cmd.Start(); err != nil {
		t.cmd = nil
		t.fail("the adapter cannot be started: %v", err)
	}
	t.adapter = jsonrpc.New(stdio{out, in}, t.notified, nil)
	go func() { _ = t.adapter.Serve(context.Background(), nil) }() // a call fails then
	t.must(t.call("hello", map[string]any{"protocols": []int{pipe.Version}, "client": "hasp verify"}), nil)
}

// stdio are the output and the input of an adapter.
type stdio struct {
	io.Reader
	io.WriteCloser
}

func (t *trial) end() {
	if t.cmd != nil {
		kill(t.cmd)
		t.adapter.Close()
		_ = t.cmd.Wait() // it was killed
	}
	if t.socket != nil {
		_ = t.socket.Close()
	}
	t.hangUp()
	_ = os.RemoveAll(t.folder)
}

func (t *trial) notified(_ context.Context, method string, params json.RawMessage, notification bool) (any, error) {
	if !notification {
		return nil, errors.New("hasp verify is the client here, and answers nothing")
	}
	r := &request{Method: method}
	if json.Unmarshal(params, &r.Params) == nil {
		select {
		case t.notices <- r:
		default: // a case needs no more than these
		}
	}
	return nil, nil
}

// notice waits for a notification of the adapter about a lease.
func (t *trial) notice(method, lease string) {
	for {
		select {
		case n := <-t.notices:
			if n.Method == method && n.Params.Lease == lease {
				return
			}
		case <-t.ctx.Done():
			t.fail("the adapter did not notify of %s in time", method)
		}
	}
}

// pending is a request to the adapter.
type pending struct {
	method string
	sent   time.Time
	cancel context.CancelFunc
	done   chan struct{}
	result json.RawMessage
	err    error
}

// call sends the adapter a request.
func (t *trial) call(method string, params any) *pending {
	p := &pending{method: method, sent: time.Now(), done: make(chan struct{})}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(p.done)
		defer p.cancel()
		p.result, p.err = t.adapter.Call(ctx, method, params, nil)
	}()
	return p
}

// failure is an error that the adapter answered with.
type failure struct {
	message string
	pipe.ErrorData
}

func (f *failure) String() string { return fmt.Sprintf("%s (kind %q)", f.message, f.Kind) }

// wait reads the answer to a request, or returns the error that was the answer.
func (t *trial) wait(p *pending, into any) *failure {
	select {
	case <-p.done:
	case <-t.ctx.Done():
		t.fail("the adapter did not answer %s in time", p.method)
	}
	var e *jsonrpc.Error
	switch {
	case errors.Is(p.err, context.Canceled):
		return &failure{"cancelled", pipe.ErrorData{Kind: pipe.Cancelled}}
	case errors.As(p.err, &e):
		f := &failure{message: e.Message}
		data, _ := e.Data.(json.RawMessage)
		_ = json.Unmarshal(data, &f.ErrorData) // then it has no kind
		return f
	case p.err != nil:
		t.fail("the adapter ended, or broke the protocol, before it answered %s", p.method)
	}
	if into != nil {
		if err := json.Unmarshal(p.result, into); err != nil {
			t.fail("the answer to %s is %s: %v", p.method, p.result, err)
		}
	}
	return nil
}

// must is wait for what cannot fail.
func (t *trial) must(p *pending, into any) {
	if f := t.wait(p, into); f != nil {
		t.fail("%s failed: %v", p.method, f)
	}
}

// refused waits for an error of a kind.
func (t *trial) refused(p *pending, kind pipe.Kind) *failure {
	var got json.RawMessage
	f := t.wait(p, &got)
	if f == nil {
		t.fail("the agent answered %s with an error of kind %s, and the adapter with %s", p.method, kind, got)
	}
	if f.Kind != kind {
		t.fail("the agent's error was of kind %s, and the adapter's is of %q", kind, cmp.Or(string(f.Kind), "none"))
	}
	return f
}

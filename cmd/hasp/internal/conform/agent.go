// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/pipe"
)

const (
	long = 600_000 // milliseconds that no case lasts
	// rounding is what a client's milliseconds may be off by.
	rounding = 50 * time.Millisecond
)

// request is what the client asked of its agent. It is read by hand, since what is written must be: in halves, or two at once.
type request struct {
	ID     json.RawMessage
	Method string // "EOF": the client closed the connection
	Params params

	came time.Time
	conn net.Conn
}

// params are those of any request.
type params struct {
	pipe.LockParams
	Lease     string
	Abandoned bool
	Protocols []int
}

// keys are those of a lock.
func (p *params) keys() []string {
	if p.Key != "" {
		return append([]string{p.Key}, p.Keys...)
	}
	return p.Keys
}

func (t *trial) listen() {
	for {
		c, err := t.socket.Accept()
		if err != nil {
			return
		}
		t.mu.Lock()
		t.conns = append(t.conns, c)
		t.mu.Unlock()
		go t.serve(c)
	}
}

// serve answers hello, and status unless that is for the script. The rest is, too.
func (t *trial) serve(c net.Conn) {
	in := bufio.NewScanner(c)
	for first := true; in.Scan(); first = false {
		r := &request{came: time.Now(), conn: c}
		if err := json.Unmarshal(in.Bytes(), r); err != nil || first && !(r.Method == "hello" && slices.Contains(r.Params.Protocols, pipe.Version)) {
			t.mu.Lock()
			t.strays = append(t.strays, in.Text())
			t.mu.Unlock()
		}
		switch {
		case r.Method == "hello":
			r.answer(t.hello())
		case r.Method == "status" && !t.silent:
			r.answer(pipe.Status{Leases: 1, Until: pipe.Until{Left: long}})
		case r.Method == "$/alive":
		default:
			t.asked <- r
		}
	}
	t.asked <- &request{Method: "EOF"}
}

func (t *trial) hello() map[string]any {
	h := map[string]any{"protocol": pipe.Version, "hasp": "v0", "store": "sqlite:hasp.db", "engine": "sqlite", "promise": []string{"none: this is a test"},
		"fences": true, "queue": true, "shared": true, "slots": true, "abandoned": true, "min_ttl_ms": 1, "ttl_ms": 30000}
	if t.odd {
		h["moon"] = map[string]any{"phase": "full", "keys": []int{1}}
	}
	return h
}

// want waits for a request of the client, and skips others; nil: p was answered first.
func (t *trial) want(method string, p *pending) *request {
	var answered chan struct{}
	if p != nil {
		answered = p.done
	}
	for {
		select {
		case r := <-t.asked:
			if r.Method == method {
				return r
			}
		case <-answered:
			return nil
		case <-t.ctx.Done():
			t.fail("the agent got no %s in time", method)
		}
	}
}

// ask asks the adapter for a lock, and returns what its client asked for.
func (t *trial) ask(params pipe.LockParams) (*pending, *request) {
	p := t.call("lock", params)
	r := t.want("lock", p)
	if r == nil {
		var got json.RawMessage
		t.fail("the adapter answered lock, and the agent was not asked: %v %s", t.wait(p, &got), got)
	}
	return p, r
}

// hangUp closes the agent's connections.
func (t *trial) hangUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		_ = c.Close()
	}
}

// line is a message, with characters that are none in JSON, but end a line for some.
func line(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return strings.ReplaceAll(string(b), `\u2028`, "\u2028") + "\n"
}

func (r *request) write(lines ...string) {
	_, _ = r.conn.Write([]byte(strings.Join(lines, ""))) // a client that closed the connection gets nothing
}

func (r *request) answered(result any) string {
	return line(map[string]any{"jsonrpc": "2.0", "id": r.ID, "result": result})
}

func (r *request) answer(result any) { r.write(r.answered(result)) }

func (r *request) notify(method string, params any) string {
	return line(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

func (r *request) refuse(message string, data any) {
	r.write(line(map[string]any{"jsonrpc": "2.0", "id": r.ID, "error": map[string]any{"code": -32000, "message": message, "data": data}}))
}

// plain is an answer to lock. lease is its name at the agent.
func (r *request) plain(lease string, left int64) *pipe.Grant {
	g := &pipe.Grant{Lease: lease, Until: pipe.Until{Left: left}}
	for i, key := range r.Params.keys() {
		g.Keys = append(g.Keys, pipe.KeyGrant{Key: key, Fence: fmt.Sprint(7 + i), Owner: fmt.Sprint("owner", i)})
	}
	if len(g.Keys) == 1 {
		g.Fence = g.Keys[0].Fence
	}
	return g
}

// held is a lease of the client.
type held struct {
	pipe.Grant           // as the adapter has it
	until      time.Time // by the agent's clock, which began when the request had come: the client's began earlier
}

// grant answers a lock, and returns what the adapter answers then.
func (t *trial) grant(p *pending, r *request, g *pipe.Grant) *held {
	r.answer(g)
	return t.granted(p, r, g)
}

// granted waits for the adapter's answer to a lock. A machine so slow that the lease is over ends the case: the client may say so.
func (t *trial) granted(p *pending, r *request, g *pipe.Grant) *held {
	h := &held{until: r.came.Add(time.Duration(g.Left) * time.Millisecond)}
	f := t.wait(p, &h.Grant)
	switch {
	case f != nil && f.Kind == pipe.Lost && time.Now().After(h.until):
		runtime.Goexit()
	case f != nil:
		t.fail("lock was granted, and failed: %v", f)
	case h.Lease == "" || len(h.Keys) != len(g.Keys):
		t.fail("the answer to lock names no lease, or not its keys: %s", p.result)
	}
	t.check(p.sent, h.Left, h)
	return h
}

// lock asks for a key, and grants it.
func (t *trial) lock(key string, left int64) (*held, *request) {
	p, r := t.ask(pipe.LockParams{Key: key})
	return t.grant(p, r, r.plain("of "+key, left)), r
}

// check judges a claim of time left, for which the adapter was asked at a time. Its answer is of later.
func (t *trial) check(asked time.Time, left int64, h *held) {
	if late := asked.Add(time.Duration(left) * time.Millisecond).Sub(h.until); left > 0 && late > rounding {
		t.fail("the client relies on a lease for %v longer than left_ms after its request", late.Round(time.Millisecond))
	}
}

// status asks for the time left of a lease, and judges it. It is 0 when it is lost.
func (t *trial) status(h *held) int64 {
	var s pipe.Status
	p := t.call("status", map[string]string{"lease": h.Lease})
	if f := t.wait(p, &s); f != nil && f.Kind != pipe.Lost {
		t.fail("status of a lease failed, but not with kind lost: %v", f)
	}
	t.check(p.sent, s.Left, h)
	return s.Left
}

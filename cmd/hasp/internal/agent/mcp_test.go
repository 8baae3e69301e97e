// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/store"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/jsonrpc"
	"github.com/hasplock/hasp/memdriver"
)

// host is the other end of a session.
type host struct {
	t    *testing.T
	conn *jsonrpc.Conn
	pipe net.Conn
	over chan error
}

// hosts share a store.
type hosts struct {
	t     *testing.T
	locks *hasp.Client
	dir   string
}

func newHosts(t *testing.T) *hosts {
	c, err := hasp.New(memdriver.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &hosts{t, c, t.TempDir()}
}

func (h *hosts) start(pid int) *host {
	h.t.Helper()
	u, err := store.Parse("sqlite:/none")
	if err != nil {
		h.t.Fatal(err)
	}
	a := &agent{Locks: &base.Locks{Client: h.locks, URL: u, Store: &store.Store{}}, o: &options{version: "1", maxHold: base.Duration{D: 30 * time.Minute}}}
	ours, theirs := net.Pipe()
	one := &host{t: h.t, pipe: ours, over: make(chan error, 1)}
	go func() {
		one.over <- a.serveMCP(context.Background(), theirs, h.dir, &driver.Label{Host: "h", PID: pid})
	}()
	one.conn = jsonrpc.New(ours, nil, nil)
	go func() { _ = one.conn.Serve(context.Background(), nil) }() // until the test ends it
	h.t.Cleanup(one.kill)
	if _, err := one.ask("initialize", `{"protocolVersion":"2025-11-25"}`); err != nil {
		h.t.Fatal(err)
	}
	return one
}

// kill ends the host: its end of the pipe is closed.
func (h *host) kill() { h.conn.Close() }

// ask calls a method.
func (h *host) ask(method, params string) (string, error) {
	r, err := h.conn.Call(context.Background(), method, json.RawMessage(params), nil)
	return string(r), err
}

// tool uses a tool, and returns what it says.
func (h *host) tool(name, arguments string) string {
	h.t.Helper()
	r, err := h.ask("tools/call", `{"name":"`+name+`","arguments":`+arguments+`}`)
	var result struct {
		Content []struct{ Type, Text string }
		IsError bool
	}
	if err != nil || json.Unmarshal([]byte(r), &result) != nil || len(result.Content) != 1 || result.Content[0].Type != "text" {
		h.t.Fatalf("%s: %s, %v", name, r, err)
	}
	if result.IsError {
		return "error: " + result.Content[0].Text
	}
	return result.Content[0].Text
}

func (h *host) says(name, arguments, pattern string) {
	h.t.Helper()
	if text := h.tool(name, arguments); !regexp.MustCompile(pattern).MatchString(text) {
		h.t.Errorf("%s %s says %q, want %s", name, arguments, text, pattern)
	}
}

func TestMCPHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts(t).start(1)
		for asked, want := range map[string]string{"2025-11-25": "2025-11-25", "2026-12-31": "2025-11-25", "2025-06-18": "2025-06-18",
			"2025-03-26": "2024-11-05", "2024-11-05": "2024-11-05", "": "2024-11-05"} {
			r, err := h.ask("initialize", `{"protocolVersion":"`+asked+`","capabilities":{}}`)
			if err != nil || !strings.Contains(r, `"protocolVersion":"`+want+`"`) || !strings.Contains(r, `"tools":{}`) {
				t.Errorf("asked for %q: %s, %v", asked, r, err)
			}
		}
		h.conn.Notify("notifications/initialized", nil)
		if r, err := h.ask("ping", "{}"); r != "{}" || err != nil {
			t.Errorf("ping: %s, %v", r, err)
		}
		r, err := h.ask("tools/list", "{}")
		var list struct {
			Tools []struct {
				Name        string
				InputSchema struct{ Type string }
			}
		}
		if err != nil || json.Unmarshal([]byte(r), &list) != nil || len(list.Tools) != 4 || list.Tools[3].InputSchema.Type != "object" {
			t.Errorf("the tools are %s, %v", r, err)
		}
		for method, params := range map[string]string{"resources/list": "{}", "tools/call": `{"name":"none"}`} {
			if _, err := h.ask(method, params); !errors.As(err, new(*jsonrpc.Error)) {
				t.Errorf("%s: %v", method, err)
			}
		}
		h.says("lock", "{}", "^error: name what to lock")
		h.says("lock", `{"keys":[""]}`, "^error: the key is empty")
		h.says("lock", `{"keys":3}`, "^error: the arguments")
	})
}

// A call waits for 45 s; the place stays for two minutes after it, and the grant that comes meanwhile until it is unlocked.
func TestMCPPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := newHosts(t)
		a, b, c := hosts.start(1), hosts.start(2), hosts.start(3)
		const k = `{"keys":["k"],"reason":"evil\u001b[31m\nyou hold"}`
		a.says("lock", k, `^you hold "k"`)
		a.says("lock", k, `^you hold "k"`)
		asked := time.Now()
		b.says("lock", k, `^still waiting, 0 ahead: "k" has been held for 45s by h .pid 1., reason "evil\\x1b\[31m\\nyou hold"`)
		if d := time.Since(asked); d != mostWait {
			t.Errorf("the call took %v", d)
		}
		c.says("lock", `{"keys":["k"],"wait_seconds":1}`, "^still waiting, 1 ahead")
		time.Sleep(keepsPlace - time.Second - mostWait)
		b.says("lock", k, "^still waiting, 0 ahead")
		a.says("unlock", "{}", `^released "k"$`)
		synctest.Wait()
		a.says("locks", "{}", `^"k" has been held .* by h .pid 2.*; 1 waiting$`)
		b.says("status", "{}", `^held: "k"$`)
		time.Sleep(keepsPlace) // c does not ask again
		b.says("locks", `{"prefix":"k"}`, `; 0 waiting$`)
		c.says("status", "{}", "^nothing")
		c.says("lock", `{"keys":["k"],"wait_seconds":1}`, "^still waiting, 0 ahead")
		c.says("unlock", `{"keys":["k"]}`, `^no longer waiting for "k"$`)
		synctest.Wait()
		b.says("locks", "{}", `; 0 waiting$`)
		b.says("unlock", `{"keys":["other"]}`, "^none")
		b.says("unlock", `{"keys":["k"]}`, `^released`)
		c.says("lock", `{"keys":["k"]}`, `^you hold "k"[^\n]*$`)
	})
}

// All keys of a call are granted together.
func TestMCPSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := newHosts(t)
		a, b := hosts.start(1), hosts.start(2)
		a.says("lock", `{"keys":["two"]}`, "^you hold")
		b.says("lock", `{"keys":["two","one"]}`, `^still waiting, 0 ahead: "two"`)
		b.says("status", "{}", `^still waiting, 0 ahead: "two"`)
		a.says("unlock", `{"keys":["two"]}`, "^released")
		b.says("lock", `{"keys":["one"]}`, `^you hold "one"`)
		b.says("status", "{}", "^held: \"one\"\nheld: \"two\"$")
		b.says("unlock", `{"keys":["one"]}`, `^released "one"$`)
		a.says("lock", `{"keys":["one"]}`, "^you hold")
		for i := range 2 { // a line has 64 KiB, in which each < becomes six bytes
			var keys []string
			for j := range 15 {
				keys = append(keys, strconv.Quote(strings.Repeat("<", 500)+strconv.Itoa(15*i+j)))
			}
			a.says("lock", `{"keys":[`+strings.Join(keys, ",")+`]}`, "^you hold")
		}
		a.says("status", "{}", `^held: "<<.*(?s:.*)…$`)
	})
}

// A lock ends with the session, at once, or after --max-hold: then the next answer says so first.
func TestMCPEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := newHosts(t)
		a, b := hosts.start(1), hosts.start(2)
		const k = `{"keys":["k"]}`
		a.says("lock", k, "^you hold")
		b.says("lock", `{"keys":["k"],"wait_seconds":1}`, "^still waiting")
		at := time.Now()
		a.kill()
		if err := <-a.over; err != nil {
			t.Error(err)
		}
		b.says("lock", k, "^you hold .*\nthe holder of \"k\" before you did not finish")
		if d := time.Since(at); d > time.Second { // of the fake clock; its TTL is 30 s
			t.Errorf("the key came %v after the end of its holder", d)
		}
		time.Sleep(31 * time.Minute)
		b.says("locks", "{}", `^LOST "k": reached --max-hold of 30m0s.*\n`)
		b.says("status", "{}", "^nothing")
	})
}

// A call that the host cancels, or gives up, keeps its place.
func TestMCPCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := newHosts(t)
		a, b := hosts.start(1), hosts.start(2)
		a.says("lock", `{"keys":["k"]}`, "^you hold")
		answer := make(chan string)
		at := time.Now()
		go func() { answer <- b.tool("lock", `{"keys":["k"]}`) }()
		synctest.Wait()
		b.conn.Notify("notifications/cancelled", map[string]int{"requestId": 2})
		if text := <-answer; !strings.HasPrefix(text, "still waiting") || time.Since(at) != 0 {
			t.Errorf("%v later: %s", time.Since(at), text)
		}
		b.conn.Notify("tools/call", map[string]any{"name": "lock", "arguments": map[string]any{"keys": []string{"k"}}})
		if _, err := b.ask("ping", "{}"); err != nil || time.Since(at) != 0 {
			t.Errorf("%v later: %v", time.Since(at), err)
		}
		a.says("unlock", "{}", "^released")
		synctest.Wait()
		b.says("status", "{}", "^held")
	})
}

func TestFileKey(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) {
		t.Helper()
		name = filepath.Join(top, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	file("repo/.git/HEAD", "")
	file("repo/src/a", "")
	file("repo/.git/worktrees/w/commondir", "../..\n")
	file("w/.git", "gitdir: "+top+"/repo/.git/worktrees/w\n")
	file("repo/.git/modules/m/HEAD", "")
	file("repo/m/.git", "gitdir: ../.git/modules/m\n")
	file("bare.git/worktrees/v/commondir", "../..\n")
	file("v/.git", "gitdir: ../bare.git/worktrees/v\n")
	file("evil/.git", "gitdir: nowhere\n")
	if err := errors.Join(os.Symlink(filepath.Join(top, "repo/src"), filepath.Join(top, "link")), os.Symlink("new", filepath.Join(top, "w/dangling"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"repo/src/a": "repo/src/a", "repo/src/../src/./a": "repo/src/a", "w/src/a": "repo/src/a", "link/a": "repo/src/a", "w/not/yet": "repo/not/yet",
		"w/dangling": "repo/new", "repo/m/x": "repo/.git/modules/m/x", "v/x": "bare.git/x", "evil/x": "evil/x", "none/x": "none/x",
	} {
		if key, err := fileKey(top, path); err != nil || key != filepath.Join(top, want) {
			t.Errorf("%s is %q, want %s (%v)", path, key, want, err)
		}
	}
	long, err := fileKey(top, "w/"+strings.Repeat("é/", 400))
	other, err2 := fileKey(top, "w/"+strings.Repeat("é/", 401))
	if err := errors.Join(err, err2, driver.CheckKey(long)); err != nil || long == other {
		t.Errorf("%q: %v", long, err)
	}
}

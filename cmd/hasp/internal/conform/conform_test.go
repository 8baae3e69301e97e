// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package conform_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/cmd/hasp/internal/conform"
	"github.com/hasplock/hasp/cmd/hasp/internal/conform/adapter"
)

// variable names the sabotage, in a process that is an adapter.
const variable = "HASP_TEST_SABOTAGE"

func TestMain(m *testing.M) {
	if name, is := os.LookupEnv(variable); is {
		if err := adapt(sabotages[name]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// sabotage is what goes wrong with the bytes of a client and its adapter.
type sabotage struct {
	in     func(read string) (string, bool)  // from the agent; false: the client dies of it
	out    func(write string) (string, bool) // to the agent
	said   func(write string) (string, bool) // by the adapter
	deaf   bool                              // it does not see the end of the connection
	orphan bool                              // a child keeps the connection
}

// wire is a stream with a sabotage.
type wire struct {
	io.Reader
	io.Writer
	io.Closer
	in, out func(string) (string, bool)
	deaf    bool
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if err != nil && w.deaf {
		select {}
	}
	if w.in == nil || err != nil {
		return n, err
	}
	s, ok := w.in(string(b[:n]))
	if !ok {
		return 0, io.EOF
	}
	return copy(b, s), nil
}

func (w *wire) Write(b []byte) (int, error) {
	s := string(b)
	if w.out != nil {
		s, _ = w.out(s)
	}
	_, err := io.WriteString(w.Writer, s)
	return len(b), err
}

func adapt(s *sabotage) error {
	c, err := net.Dial("unix", strings.TrimPrefix(os.Getenv("HASP_AGENT"), "unix:"))
	if err != nil {
		return err
	}
	if s.orphan {
		f, err := c.(*net.UnixConn).File()
		if err != nil {
			return err
		}
		child := exec.Command("sleep", "15")
		child.ExtraFiles, child.SysProcAttr = []*os.File{f}, &syscall.SysProcAttr{Setpgid: true}
		if err := child.Start(); err != nil {
			return err
		}
	}
	return adapter.Serve(&wire{os.Stdin, os.Stdout, os.Stdin, nil, s.said, false}, &wire{c, c, c, s.in, s.out, s.deaf})
}

func replace(pairs ...string) func(string) (string, bool) {
	r := strings.NewReplacer(pairs...)
	return func(s string) (string, bool) { return r.Replace(s), true }
}

// dies is a client that does not survive what has a text.
func dies(of func(s string) bool) func(string) (string, bool) {
	return func(s string) (string, bool) { return s, !of(s) }
}

func drop(text string) func(string) (string, bool) {
	return func(s string) (string, bool) {
		lines := slices.DeleteFunc(strings.SplitAfter(s, "\n"), func(l string) bool { return strings.Contains(l, text) })
		return strings.Join(lines, ""), true
	}
}

// inOrder is a client that takes each answer for that to its oldest request.
func inOrder() *sabotage {
	var mu sync.Mutex
	var asked []string
	id := regexp.MustCompile(`"id":\d+`)
	return &sabotage{
		out: func(s string) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, id.FindAllString(s, -1)...)
			return s, true
		},
		in: func(s string) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			return id.ReplaceAllStringFunc(s, func(string) (oldest string) {
				oldest, asked = asked[0], asked[1:]
				return oldest
			}), true
		},
	}
}

// sabotages break one rule each, whose name they have; "" breaks none.
var sabotages = map[string]*sabotage{
	"":           {},
	"hello":      {out: replace(`"protocols":[1]`, `"protocols":[2]`)},
	"fence":      {said: replace("9007199254740993", "9007199254740992")},
	"unknown":    {in: dies(func(s string) bool { return strings.Contains(s, "moon") })},
	"order":      inOrder(),
	"halves":     {in: dies(func(s string) bool { return !strings.HasSuffix(s, "\n") })},
	"together":   {in: dies(func(s string) bool { return strings.Count(s, "\n") > 1 })},
	"long":       {in: dies(func(s string) bool { return len(s) > 8<<10 })},
	"keys":       {out: replace(`"keys":["b","a","c"]`, `"keys":["a","b","c"]`)},
	"text":       {out: replace(`\u0001`, "")},
	"parameters": {out: replace(`"wait_ms":0`, `"wait_ms":1`)},
	"busy":       {said: replace(`"host":"far"`, `"host":"near"`)},
	"errors":     {said: replace("misconfigured", "unavailable")},
	"release":    {out: replace(`"lease":"of k"`, `"lease":"of other"`)},
	"extend":     {said: replace("unsupported", "invalid")},
	"abandoned":  {said: replace(`"abandoned":true`, `"abandoned":false`)},
	"wanted":     {out: replace(`,"wanted":true`, "")},
	"lost":       {in: drop("LOST")},
	"silence":    {in: replace(`"left_ms":400`, `"left_ms":40000`)},
	"clock":      {in: replace(`"left_ms":3000`, `"left_ms":3600`)},
	"prolong":    {in: replace(`"left_ms":600000`, `"left_ms":6000`)},
	"new lease":  {in: replace(`"left_ms":8000`, `"left_ms":600000`)},

	"lost release": {said: replace(`"kind":"lost"`, `"kind":"closed"`)},
	"lost work":    {out: replace(`,"abandoned":true`, "", `, "abandoned": true`, "")},

	"end of file": {deaf: true},
	"cancel":      {said: replace("-32800", "-32000", "cancelled", "busy")},
	"cancel late": {out: drop(`"release"`)},
	"late grant":  {out: drop(`"release"`)},
	"bye":         {out: drop(`"bye"`)},
	"kill":        {orphan: true},
}

func command(t *testing.T, sabotage string) string {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s='%s' exec '%s'", variable, sabotage, exe)
}

func TestReference(t *testing.T) {
	t.Parallel()
	results := conform.Run(t.Context(), command(t, ""), os.Stderr)
	if len(results) != len(conform.Cases) {
		t.Errorf("%d of %d cases were tried", len(results), len(conform.Cases))
	}
	for _, r := range results {
		if r.Broken != "" {
			t.Errorf("%s: %s: %s", r.Name, r.Rule, r.Broken)
		}
	}
}

// Each rule is broken by a client that breaks it.
func TestSabotages(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // some never do what they have to
	defer cancel()
	var under sync.WaitGroup
	for i := range conform.Cases {
		c := &conform.Cases[i]
		if sabotages[c.Name] == nil {
			t.Errorf("%s: nothing breaks it", c.Name)
			continue
		}
		under.Go(func() {
			r := c.Try(ctx, command(t, c.Name), nil)
			if r.Broken == "" {
				t.Errorf("%s is broken, and that was not seen: %s", c.Name, c.Rule)
			}
			t.Logf("%s: %s", c.Name, r.Broken)
		})
	}
	under.Wait()
}

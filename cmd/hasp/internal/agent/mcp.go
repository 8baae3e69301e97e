// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/jsonrpc"
	"github.com/hasplock/hasp/internal/plain"
)

const (
	mostWait   = 45 * time.Second // of one call: hosts give up after a minute
	keepsPlace = 2 * time.Minute  // for how long a place stays that no call asks for
	mostKeys   = 100              // of one call
	oldest     = "2024-11-05"     // version of MCP
	mostText   = 10000            // bytes of an answer: in JSON a byte may become six, and a line has 64 KiB
)

// protocols are the versions of MCP that are spoken here, the newest first. 2025-03-26 has batches, which are not.
var protocols = []string{"2025-11-25", "2025-06-18", oldest}

// session is what one host holds and waits for.
type session struct {
	*agent
	dir   string
	label *driver.Label
	conn  *jsonrpc.Conn
	ctx   context.Context // of its waits
	work  sync.WaitGroup

	mu    sync.Mutex
	over  bool // the host is gone
	held  map[string]*hasp.Lease
	waits []*waiting
	lost  []string // what the next answer begins with
}

// waiting is a place in the queues of keys, which are granted together.
type waiting struct {
	keys      []string
	done      chan struct{} // closed when the wait is over
	err       error         // then; nil: they are held
	cancel    context.CancelCauseFunc
	unasked   *time.Timer
	withdrawn bool
}

var errUnasked = errors.New("no call asked for it for two minutes")
var errWithdrawn error = base.Usage("it was unlocked meanwhile")

// serveMCP serves a host until that closes the connection. What it holds then is abandoned.
func (a *agent) serveMCP(ctx context.Context, rwc io.ReadWriteCloser, dir string, label *driver.Label) error {
	waits, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s := &session{agent: a, dir: dir, label: label, ctx: waits, held: map[string]*hasp.Lease{}}
	s.conn = jsonrpc.New(rwc, s.handle, nil)
	err := s.conn.Serve(ctx, func() {
		s.mu.Lock()
		s.over = true
		for _, l := range s.held {
			s.work.Go(func() { _ = l.Abandon() }) // no host is left to be told; the TTL ends what stays
		}
		s.mu.Unlock()
		cancel()
	})
	s.work.Wait()
	return err
}

func (s *session) handle(ctx context.Context, method string, params json.RawMessage, notification bool) (any, error) {
	if method == "ping" || notification && method != "notifications/cancelled" { // a tool would hold up the reader
		return nil, nil
	}
	var p struct {
		Version   string          `json:"protocolVersion"`
		Request   json.RawMessage `json:"requestId"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if len(params) > 0 && json.Unmarshal(params, &p) != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParams, Message: "the parameters of " + method + " are not as expected"}
	}
	switch method {
	case "initialize":
		of := slices.IndexFunc(protocols, func(v string) bool { return v <= max(p.Version, oldest) }) // they are dates
		return map[string]any{"protocolVersion": protocols[of], "capabilities": map[string]any{"tools": struct{}{}},
			"serverInfo": map[string]string{"name": "hasp", "version": s.o.version}}, nil
	case "notifications/cancelled": // by a time-out, too: the place stays for a while
		s.conn.Cancel(p.Request)
		return nil, nil
	case "tools/list":
		return json.RawMessage(tools), nil
	case "tools/call":
		return s.call(ctx, p.Name, p.Arguments)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethod, Message: fmt.Sprintf("there is no method %q", method)}
}

// arguments are those of all tools.
type arguments struct {
	Paths  []string `json:"paths"`
	Keys   []string `json:"keys"`
	Reason string   `json:"reason"`
	Wait   float64  `json:"wait_seconds"`
	Prefix string   `json:"prefix"`
}

// call uses a tool. What went wrong is an answer, too, since the agent is to read it.
func (s *session) call(ctx context.Context, name string, given json.RawMessage) (any, error) {
	tool := map[string]func(context.Context, *arguments, []string) (string, error){"lock": s.lock, "unlock": s.unlock, "status": s.status, "locks": s.list}[name]
	if tool == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParams, Message: fmt.Sprintf("there is no tool %q", name)}
	}
	a, text := &arguments{Wait: mostWait.Seconds()}, ""
	keys, err := s.keys(a, given)
	if err == nil {
		text, err = tool(ctx, a, keys)
	}
	if err != nil {
		text = s.explain(err)
	}
	s.mu.Lock()
	s.sweep()
	if ctx.Err() == nil { // the host still reads it
		text, s.lost = strings.Join(append(s.lost, text), "\n"), nil
	}
	s.mu.Unlock()
	if text = plain.Lines(text); len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	return map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}, "isError": err != nil}, nil
}

// keys reads the arguments, and returns the keys of the files, and the others, in the order in which they are locked.
func (s *session) keys(a *arguments, given json.RawMessage) ([]string, error) {
	if err := json.Unmarshal([]byte(cmp.Or(string(given), "{}")), a); err != nil {
		return nil, base.Usage("the arguments are not as expected: %v", err)
	}
	if len(a.Paths)+len(a.Keys) > mostKeys {
		return nil, base.Usage("a call takes at most %d files and keys", mostKeys)
	}
	keys, err := base.Distinct(a.Keys)
	for _, path := range a.Paths {
		key, bad := fileKey(s.dir, path)
		if bad != nil {
			return nil, base.Failed("%s", plain.Error(bad))
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// sweep notes what was lost. The caller holds mu.
func (s *session) sweep() {
	for key, l := range s.held {
		if err := l.Err(); err != nil {
			delete(s.held, key)
			s.lost = append(s.lost, s.explain(err)+". Another may have changed it: lock it again, and read it anew")
			s.work.Go(func() { _ = l.Abandon() }) // for a store that does not know of it
		}
	}
}

func (s *session) lock(ctx context.Context, a *arguments, keys []string) (string, error) {
	if len(keys) == 0 {
		return "", base.Usage("name what to lock, in paths or in keys")
	}
	limit := time.NewTimer(time.Duration(min(max(a.Wait, 1), mostWait.Seconds()) * float64(time.Second)))
	defer limit.Stop()
	for {
		w := s.next(keys, a.Reason)
		if w == nil {
			return s.granted(keys), nil
		}
		select {
		case <-w.done:
			if w.err != nil && !errors.Is(w.err, errUnasked) { // which came as this call did
				return "", w.err
			}
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		w.unasked.Reset(keepsPlace)
		return s.progress(ctx, w), nil
	}
}

// next is the wait for those of the keys that are not held; nil: all are.
func (s *session) next(keys []string, reason string) *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return s.held[key] != nil })
	if len(keys) == 0 {
		return nil
	}
	for _, w := range s.waits {
		if !w.withdrawn && slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(w.keys, key) }) {
			w.unasked.Reset(keepsPlace)
			return w
		}
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	w := &waiting{keys: keys, done: make(chan struct{}), cancel: cancel}
	w.unasked = time.AfterFunc(keepsPlace, func() { cancel(errUnasked) })
	s.waits = append(s.waits, w)
	s.work.Go(func() { s.take(ctx, w, reason) })
	return w
}

// take waits for the keys, however many calls that takes.
func (s *session) take(ctx context.Context, w *waiting, reason string) {
	var all hasp.Locks
	for _, key := range w.keys {
		all = append(all, s.Mutex(key, &hasp.LockOptions{MaxHold: s.o.maxHold.D, Reason: reason, Label: s.label}))
	}
	leases, err := all.Lock(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	w.cancel(nil)
	s.mu.Lock()
	w.unasked.Stop()
	s.waits = slices.DeleteFunc(s.waits, func(one *waiting) bool { return one == w })
	if err == nil && (s.over || w.withdrawn) {
		err = errWithdrawn
		s.work.Go(func() { _ = leases.Release() }) // the host did not know of it
	}
	if w.err = err; err == nil {
		for i, l := range leases.All() {
			s.held[w.keys[i]] = l
		}
	}
	s.mu.Unlock()
	close(w.done)
}

func (s *session) granted(keys []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := "you hold " + base.QuoteAll(keys) + ": read before you edit, and unlock when it is done"
	for _, key := range keys {
		if l := s.held[key]; l != nil && l.Abandoned() {
			text += "\nthe holder of " + base.Quote(key) + " before you did not finish: look at what it left"
		}
	}
	return text
}

// progress says what a wait waits for.
func (s *session) progress(ctx context.Context, w *waiting) string {
	ctx, cancel := context.WithTimeout(ctx, base.AskLimit)
	defer cancel()
	for _, key := range w.keys {
		info, err := s.Inspect(ctx, key)
		switch ahead := slices.IndexFunc(info.Queue, s.mine); {
		case err != nil:
			return "still waiting for " + base.Quote(key) + ": " + s.explain(err) + ". Call lock again"
		case ahead >= 0 || info.Held && !s.mine(info.Holder):
			return fmt.Sprintf("still waiting, %d ahead: %s %s. Call lock again to keep the place", max(ahead, 0), base.Quote(key), base.Obstacle(info.Holder, info.Left, 0))
		}
	}
	return "still waiting for " + base.QuoteAll(w.keys) + ": call lock again"
}

// mine says whether an owner is this session's.
func (s *session) mine(h hasp.Holder) bool {
	l := h.Describe()
	return s.label != nil && l.PID == s.label.PID && l.Process == s.label.Process && l.Host == s.label.Host
}

func (s *session) unlock(_ context.Context, a *arguments, keys []string) (string, error) {
	named := func(key string) bool { return len(a.Paths)+len(a.Keys) == 0 || slices.Contains(keys, key) }
	var text []string
	var given sync.WaitGroup
	s.mu.Lock()
	s.sweep()
	for _, w := range s.waits {
		if slices.ContainsFunc(w.keys, named) {
			w.withdrawn = true
			w.cancel(errWithdrawn)
			text = append(text, "no longer waiting for "+base.QuoteAll(w.keys))
		}
	}
	for key, l := range s.held {
		if named(key) {
			delete(s.held, key)
			given.Go(func() {
				said := "released " + base.Quote(key)
				if err := l.Release(); err != nil {
					said = base.Quote(key) + " may be held until its TTL is over: " + s.explain(err)
				}
				s.mu.Lock()
				text = append(text, said)
				s.mu.Unlock()
			})
		}
	}
	s.mu.Unlock()
	given.Wait()
	slices.Sort(text)
	return cmp.Or(strings.Join(text, "\n"), "none of them was held"), nil
}

func (s *session) status(ctx context.Context, _ *arguments, _ []string) (string, error) {
	s.mu.Lock()
	s.sweep()
	var text []string
	for key := range s.held {
		text = append(text, "held: "+base.Quote(key))
	}
	waits := slices.Clone(s.waits)
	s.mu.Unlock()
	slices.Sort(text)
	for _, w := range waits {
		text = append(text, s.progress(ctx, w))
	}
	return cmp.Or(strings.Join(text, "\n"), "nothing is held, and nothing waited for"), nil
}

func (s *session) list(ctx context.Context, a *arguments, _ []string) (string, error) {
	found, err := s.All(ctx, a.Prefix)
	if err != nil {
		return "", err
	}
	var text []string
	for _, i := range found {
		if i.Held && len(text) < mostKeys {
			text = append(text, fmt.Sprintf("%s %s; %d waiting", base.Quote(i.Key), base.Obstacle(i.Holder, i.Left, 0), i.Waiters))
		}
	}
	return cmp.Or(strings.Join(text, "\n"), "nothing is held"), nil
}

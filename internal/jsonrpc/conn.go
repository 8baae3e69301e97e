// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonrpc is JSON-RPC 2.0 with one object a line, UTF-8, over a pipe or a socket. Either end may call the other.
package jsonrpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// MaxLine is how long a line may be, with its end, in bytes.
	MaxLine = 64 << 10
	// maxUnread bounds what the other end has not read, in bytes. A connection with more is closed.
	maxUnread = 1 << 20
	// maxIdle is how many goroutines stay when there were more requests at once.
	maxIdle = 64
)

// The codes of JSON-RPC, and of cancellation, which is LSP's.
const (
	CodeParse     = -32700 // no JSON, or more than a line: the connection ends
	CodeRequest   = -32600 // JSON, but no request
	CodeMethod    = -32601 // there is no such method
	CodeParams    = -32602 // what the method was given is wrong
	CodeCancelled = -32800 // by $/cancelRequest
)

// Error is the error of a response. Data is marshalled as it is, and is a json.RawMessage in the error of a Call.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// ErrBroken is a line that was none: the other end does not speak this protocol.
var ErrBroken = errors.New("a line is not one JSON object of at most 64 KiB of UTF-8")

// ErrLong is a message of ours that is no line.
var ErrLong = errors.New("a line has at most 64 KiB")

// Handler answers a request, or takes a notification, whose answer is dropped. ctx ends with the connection, and when the request
// is cancelled. Of a request it runs in a goroutine of its own, of a notification, and of the first request, a greeting, in the
// reader's: it must not block then.
type Handler func(ctx context.Context, method string, params json.RawMessage, notification bool) (any, error)

// Then is a result after whose answer, or that of the error beside it, Do is called: what it sends comes behind.
type Then struct {
	Result any
	Do     func()
}

// Conn is a connection. Its methods may be called by many goroutines.
type Conn struct {
	rwc    io.ReadWriteCloser
	handle Handler
	heard  func() // called for each line; may be nil

	out     sync.Mutex
	pending []byte
	last    bool          // no more comes: the writer closes the connection
	wake    chan struct{} // room for one: there is something to write
	gone    chan struct{} // closed with the connection
	close   sync.Once

	idle    chan func()
	idlers  atomic.Int32 // goroutines that wait for one
	greeted bool         // the first request came; of the reader

	mu    sync.Mutex
	under map[string]context.CancelFunc // requests of the other end, by id; nil: the connection has ended
	calls map[int64]*call               // ours
	next  int64
	work  sync.WaitGroup
}

// call is a request of ours.
type call struct {
	answer chan *message
	first  func(result json.RawMessage)
}

// message is a line.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error,omitempty"`
}

// New returns a connection, on which nothing is read before Serve. heard, if not nil,
// is called for each line.
func New(rwc io.ReadWriteCloser, handle Handler, heard func()) *Conn {
	c := &Conn{rwc: rwc, handle: handle, heard: heard, wake: make(chan struct{}, 1), idle: make(chan func()), gone: make(chan struct{}),
		under: map[string]context.CancelFunc{}, calls: map[int64]*call{}}
	go c.write()
	return c
}

// Close ends the connection at once: what is not written is lost. Calls under way fail with io.ErrUnexpectedEOF.
func (c *Conn) Close() {
	c.close.Do(func() {
		close(c.gone)
		_ = c.rwc.Close() // there is no other way to end a read
	})
}

// Gone is closed with the connection.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Serve reads until the other end closes the connection (nil), breaks the protocol (ErrBroken), or ctx or Close ends it. Then the contexts
// of all requests end, ended is called, if not nil, and Serve returns when the handlers have.
func (c *Conn) Serve(ctx context.Context, ended func()) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, c.Close)
	err := c.read(ctx)
	stop()
	c.mu.Lock()
	c.under = nil
	for id, call := range c.calls {
		delete(c.calls, id)
		close(call.answer)
	}
	c.mu.Unlock()
	cancel()
	if ended != nil {
		ended()
	}
	close(c.idle)
	c.work.Wait()
	if err != nil { // the other end may still be writing, and hears of it when it reads
		c.End()
	}
	c.Close()
	return err
}

// End closes the connection once all is written, or the other end has not read that for a second.
func (c *Conn) End() {
	c.out.Lock()
	c.last = true
	c.out.Unlock()
	c.wakeUp()
	select {
	case <-c.gone:
	case <-time.After(time.Second):
		c.Close()
	}
}

func (c *Conn) read(ctx context.Context) error {
	in := bufio.NewReaderSize(c.rwc, MaxLine)
	for {
		line, err := in.ReadSlice('\n')
		if c.heard != nil && len(line) > 0 {
			c.heard()
		}
		switch {
		case err != nil && len(line) == 0:
			return nil // however it ended
		case err != nil: // too long, or half of one
			line = []byte("-")
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && !c.take(ctx, line) {
			c.respond(json.RawMessage("null"), nil, &Error{Code: CodeParse, Message: ErrBroken.Error()})
			return ErrBroken
		}
	}
}

// take handles a line; false: it is broken.
func (c *Conn) take(ctx context.Context, line []byte) bool {
	var m message
	if line[0] != '{' || !utf8.Valid(line) {
		return false
	}
	err := json.Unmarshal(line, &m)
	mistyped := errors.As(err, new(*json.UnmarshalTypeError))
	switch {
	case err != nil && !mistyped:
		return false
	case !mistyped && m.Method == "" && (m.Result != nil || m.Error != nil):
		return c.answered(&m)
	case mistyped || m.Version != "2.0" || m.Method == "" || !isID(m.ID):
		c.respond(json.RawMessage("null"), nil, &Error{Code: CodeRequest, Message: `a request has "jsonrpc": "2.0", a method, and an id that is a string or a number`})
	case m.ID == nil:
		c.notified(ctx, &m)
	default:
		c.asked(ctx, &m)
	}
	return true
}

func isID(id json.RawMessage) bool {
	return id == nil || len(id) <= 64 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// answered takes the response to a call of ours.
func (c *Conn) answered(m *message) bool {
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err != nil {
		return string(m.ID) == "null" // the other end could not read what we wrote, and says so
	}
	c.mu.Lock()
	call := c.calls[id]
	delete(c.calls, id)
	c.mu.Unlock()
	if call == nil {
		return true
	}
	if call.first != nil && m.Error == nil {
		call.first(m.Result)
	}
	call.answer <- m
	return true
}

func (c *Conn) notified(ctx context.Context, m *message) {
	if m.Method != "$/cancelRequest" {
		_, _ = c.handle(ctx, m.Method, m.Params, true)
		return
	}
	var p struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	c.Cancel(p.ID)
}

// Cancel ends the context of a request of the other end, as $/cancelRequest does: other protocols have another name for that.
func (c *Conn) Cancel(id json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.under[string(id)]; cancel != nil {
		cancel()
	}
}

// asked answers a request.
func (c *Conn) asked(ctx context.Context, m *message) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	_, used := c.under[string(m.ID)]
	if !used {
		c.under[string(m.ID)] = cancel
	}
	c.mu.Unlock()
	if used {
		cancel()
		c.respond(m.ID, nil, &Error{Code: CodeRequest, Message: "a request with this id is under way"})
		return
	}
	answer := func() {
		defer cancel()
		result, err := c.handle(ctx, m.Method, m.Params, false)
		c.mu.Lock()
		delete(c.under, string(m.ID)) // before the answer: the id may be used again after it
		c.mu.Unlock()
		then, ok := result.(Then)
		if !ok {
			then = Then{result, func() {}}
		}
		c.respond(m.ID, then.Result, err)
		then.Do()
	}
	if !c.greeted {
		c.greeted = true
		answer()
		return
	}
	select {
	case c.idle <- answer: // a goroutine whose stack has grown
	default:
		c.work.Go(func() {
			for do := answer; do != nil; {
				if do(); c.idlers.Add(1) <= maxIdle {
					do = <-c.idle
				} else {
					do = nil
				}
				c.idlers.Add(-1)
			}
		})
	}
}

func (c *Conn) respond(id json.RawMessage, result any, err error) {
	m := response{"2.0", id, result, nil}
	if result == nil {
		m.Result = struct{}{}
	}
	if err == nil {
		err = c.send(m)
	}
	if err == nil {
		return
	}
	if m.Result = nil; !errors.As(err, &m.Error) {
		m.Error = &Error{Code: CodeRequest, Message: err.Error()}
	}
	if err := c.send(m); err != nil { // a message as long as that has not been written by a handler of ours
		_ = c.send(response{"2.0", id, nil, &Error{Code: CodeRequest, Message: "the error has more than a line"}})
	}
}

type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// Notify sends a notification. It never blocks.
func (c *Conn) Notify(method string, params any) {
	_ = c.send(request{"2.0", 0, method, params})
}

type request struct {
	Version string `json:"jsonrpc"`
	ID      int64  `json:"id,omitempty"` // 0: a notification
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

// patience is how long the other end may take to answer a request that was cancelled.
const patience = 5 * time.Second

// Call sends a request, and waits for its answer. When ctx ends it is cancelled; the answer may still be a result. Where none comes the connection
// is closed after 5 seconds. first, if not nil, has the result before anything is handled that the other end sent later.
func (c *Conn) Call(ctx context.Context, method string, params any, first func(result json.RawMessage)) (json.RawMessage, error) {
	call := &call{make(chan *message, 1), first}
	c.mu.Lock()
	c.next++
	id, open := c.next, c.under != nil
	if open {
		c.calls[id] = call
	}
	c.mu.Unlock()
	if !open {
		return nil, io.ErrUnexpectedEOF
	}
	if err := c.send(request{"2.0", id, method, params}); err != nil {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
		return nil, err
	}
	var m *message
	select {
	case m = <-call.answer:
	case <-ctx.Done():
		c.Notify("$/cancelRequest", map[string]int64{"id": id})
		silent := time.AfterFunc(patience, c.Close)
		m = <-call.answer
		silent.Stop()
		if m != nil && m.Error != nil && m.Error.Code == CodeCancelled {
			return nil, context.Cause(ctx)
		}
	}
	switch {
	case m == nil:
		return nil, io.ErrUnexpectedEOF
	case m.Error != nil:
		return nil, &Error{m.Error.Code, m.Error.Message, m.Error.Data}
	}
	return m.Result, nil
}

// send has a message written. What the other end does not read in time closes the connection.
func (c *Conn) send(m any) error {
	line, err := json.Marshal(m)
	if err == nil && len(line) >= MaxLine {
		err = fmt.Errorf("the message has %d bytes: %w", len(line), ErrLong)
	}
	if err != nil {
		return err
	}
	c.out.Lock()
	c.pending = append(append(c.pending, line...), '\n')
	full := len(c.pending) > maxUnread
	c.out.Unlock()
	if full {
		c.Close()
		return nil
	}
	c.wakeUp()
	return nil
}

func (c *Conn) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes what is pending, all of it at once.
func (c *Conn) write() {
	var lines []byte
	for {
		select {
		case <-c.wake:
		case <-c.gone:
			return
		}
		c.out.Lock()
		lines, c.pending = c.pending, lines[:0]
		last := c.last
		c.out.Unlock()
		if len(lines) > 0 {
			if _, err := c.rwc.Write(lines); err != nil {
				last = true
			}
		}
		if last {
			c.Close()
			return
		}
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package adapter is what hasp verify --client starts, for the client of package pipe.
package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/jsonrpc"
	"github.com/hasplock/hasp/pipe"
)

// Serve answers requests at rwc by a client at the other end of agent, until either closes.
func Serve(rwc, agent io.ReadWriteCloser) error {
	c, err := pipe.NewClient(context.Background(), agent, "hasp verify", 0)
	if err != nil {
		return err
	}
	a := &adapter{client: c, leases: map[string]*pipe.Lease{}}
	a.conn = jsonrpc.New(rwc, a.handle, nil)
	defer c.Kill()
	return a.conn.Serve(context.Background(), nil)
}

type adapter struct {
	client *pipe.Client
	conn   *jsonrpc.Conn

	mu     sync.Mutex
	leases map[string]*pipe.Lease
}

func (a *adapter) handle(ctx context.Context, method string, params json.RawMessage, notification bool) (any, error) {
	if notification {
		return nil, nil
	}
	result, err := a.do(ctx, method, params)
	if e := (*pipe.Error)(nil); errors.As(err, &e) {
		return nil, &jsonrpc.Error{Code: -32000, Message: e.Message, Data: e.ErrorData}
	} else if ctx.Err() != nil && err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeCancelled, Message: err.Error(), Data: pipe.ErrorData{Kind: pipe.Cancelled}}
	}
	return result, err
}

func (a *adapter) do(ctx context.Context, method string, params json.RawMessage) (any, error) {
	var p struct {
		pipe.LockParams
		Lease string `json:"lease"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	a.mu.Lock()
	l := a.leases[p.Lease]
	a.mu.Unlock()
	switch {
	case method == "hello":
		return a.client.Hello, nil
	case method == "bye":
		return nil, a.client.Close()
	case method == "lock":
		return a.lock(ctx, p.LockParams)
	case l != nil && method == "status":
		return pipe.Status{Leases: 1, Until: until(l)}, l.Err()
	case l != nil && method == "release":
		a.mu.Lock()
		delete(a.leases, p.Lease)
		a.mu.Unlock()
		return nil, l.Release()
	}
	return nil, &pipe.Error{Message: "the client cannot " + method, ErrorData: pipe.ErrorData{Kind: pipe.Unsupported}}
}

func (a *adapter) lock(ctx context.Context, p pipe.LockParams) (any, error) {
	l, err := a.client.Lock(ctx, p)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.leases[l.Lease] = l
	a.mu.Unlock()
	go a.tell(l)
	g := l.Grant
	g.Until = until(l)
	return g, nil
}

func until(l *pipe.Lease) pipe.Until {
	return pipe.Until{Left: max(time.Until(l.Deadline()), 0).Milliseconds()}
}

// tell notifies of what becomes of a lease.
func (a *adapter) tell(l *pipe.Lease) {
	n := pipe.Notice{Lease: l.Lease}
	select {
	case <-l.Wanted():
		a.conn.Notify("wanted", n)
	case <-l.Done():
	}
	<-l.Done()
	a.mu.Lock()
	held := a.leases[l.Lease] != nil
	a.mu.Unlock()
	if held {
		n.Message = l.Err().Error()
		a.conn.Notify("lost", n)
	}
}

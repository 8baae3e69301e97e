// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rueidis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/rueidis"
)

// client is a client of rueidis, as hasp needs one.
type client struct {
	rueidis.Client
	traits  wire.Traits
	connect chan struct{} // bounds the subscriptions that wait for the program's blocking pool, which no context ends
	heeds   bool          // Run ends with its context, as the program's own commands do
}

func wrap(c rueidis.Client) *client {
	t := wire.Traits{Kind: fmt.Sprintf("%T", c), Waits: true}
	if c == nil {
		t.Unusable = &wire.ConfigError{Why: "the client is nil"}
	} else {
		t.Cluster = c.Mode() == rueidis.ClientModeCluster
	}
	return &client{Client: c, traits: t, connect: make(chan struct{}, wire.MaxBoxes)}
}

func (c *client) Traits() wire.Traits { return c.traits }

// waitTime bounds a pipeline with WAIT, which rueidis gives any time.
const waitTime = 5 * time.Second

// Run does not hand on the end of ctx: its callers but a guard do not wait for it. Where rueidis uses a connection for one
// command at a time, a deadline would close it, which is the program's.
func (c *client) Run(ctx context.Context, cmds []wire.Command) error {
	multi := make([]rueidis.Completed, len(cmds))
	waits, do := false, c.DoMulti
	if !c.heeds {
		ctx = context.WithoutCancel(ctx)
	}
	for i := range cmds {
		args := cmds[i].Args
		if !cmds[i].Goes() {
			args = []any{"ping"}
		}
		waits = waits || args[0] == "wait"
		multi[i] = c.command(args)
	}
	if waits {
		limited, end := context.WithTimeout(ctx, waitTime)
		defer end()
		ctx = limited
		if c.traits.Cluster { // a connection that follows no redirection, which WAIT would not go along with
			conn, done := c.Dedicate()
			defer done()
			do = conn.DoMulti
		}
	}
	if len(multi) == 1 {
		return c.answer(&cmds[0], c.Do(ctx, multi[0]))
	}
	var first error
	for i, r := range do(ctx, multi...) {
		first = cmp.Or(first, c.answer(&cmds[i], r))
	}
	return first
}

// answer notes what became of a command.
func (c *client) answer(cmd *wire.Command, r rueidis.RedisResult) error {
	cmd.Reply, cmd.Err = r.ToAny()
	cmd.Err = c.explain(cmd.Err)
	return cmd.Err
}

// command writes a command as rueidis wants it: in a cluster it goes where its first key is.
func (c *client) command(args []any) rueidis.Completed {
	name := args[0].(string)
	key := 0
	switch name {
	case "eval", "evalsha":
		key = 3
	case "getrange", "pttl", "spublish", "zcard":
		key = 1
	}
	b := c.B().Arbitrary(strings.ToUpper(name))
	for i, arg := range args[1:] {
		if i+1 == key && len(args) > key {
			b = b.Keys(text(arg))
		} else {
			b = b.Args(text(arg))
		}
	}
	if name == "wait" {
		return b.Blocking() // it takes a connection for the whole pipeline
	}
	return b.Build()
}

// text is an argument as Redis wants it.
func text(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return fmt.Sprint(arg)
}

// serverError is what the server said. rueidis leaves out ERR, which is not a code of its own.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// explain is an error of rueidis in the terms of package wire.
func (c *client) explain(err error) error {
	said, server := rueidis.IsRedisErr(err)
	switch {
	case err == nil:
		return nil
	case rueidis.IsRedisNil(err):
		return wire.Nil
	case server:
		text := said.Error()
		if code, _, _ := strings.Cut(text, " "); code != strings.ToUpper(code) {
			text = "ERR " + text
		}
		return serverError(text)
	case errors.Is(err, rueidis.ErrNoSlot):
		return serverError("CLUSTERDOWN no node that the client knows serves the key's hash slot")
	case errors.Is(err, rueidis.ErrClosing):
		if c.Do(context.Background(), c.B().Ping().Build()).Error() == rueidis.ErrClosing { //nolint:errorlint // the very value
			return wire.ErrClosed
		}
		return fmt.Errorf("redis: the connection was closed, as another server is the master: %w", io.EOF)
	}
	return err // never NotSent: rueidis may have sent it, and dialed for a second time
}

// Masters asks every node what it is.
func (c *client) Masters(ctx context.Context, key string) (nodes []wire.Client, err error) {
	if !c.traits.Cluster || key != "" {
		return []wire.Client{c}, nil
	}
	for _, node := range c.Nodes() {
		role, err := node.Do(context.WithoutCancel(ctx), node.B().Role().Build()).ToArray()
		if err != nil {
			return nil, c.explain(err)
		}
		if is, _ := role[0].ToString(); is == "master" {
			nodes = append(nodes, &client{Client: node})
		}
	}
	return nodes, nil
}

// LookAgain does nothing: a client of a cluster looks by itself after each error that may mean another master.
func (c *client) LookAgain(context.Context) {}

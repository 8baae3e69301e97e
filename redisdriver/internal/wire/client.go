// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"time"
)

// Client is what hasp needs of a client of Redis, which is the program's. It is used by many goroutines.
type Client interface {
	// Traits says what the client is. It does no I/O.
	Traits() Traits
	// Run sends commands as one pipeline, and sets Reply of each, which is never nil, or Err. Where some failed,
	// it returns an error of one of them, or of all. It sends no command twice that is Once, and asks
	// each whether it Goes when it writes it. ctx may end it early.
	Run(ctx context.Context, cmds []Command) error
	// Masters returns a client for each server that has keys, or for the one that has a key. Each of these clients runs a pipeline over one connection.
	Masters(ctx context.Context, key string) ([]Client, error)
	// LookAgain looks which nodes of a cluster are masters now.
	LookAgain(ctx context.Context)
	// Subscription returns a connection of its own, which may connect when it is first used.
	Subscription(ctx context.Context) Subscription
}

// Traits are what a Client is.
type Traits struct {
	Kind        string        // its type's name
	Unusable    error         // why it cannot be used for locks
	Cluster     bool          // keys are on several masters
	Waits       bool          // WAIT is about what a pipeline wrote
	Deadlines   bool          // a deadline ends a Run
	ReadTimeout time.Duration // for an answer; 0: any
}

// Command is one command of a pipeline, and what became of it.
type Command struct {
	Args  []any
	Reply any // string, int64 or []any of these, and nil in them
	Err   error

	calls []*Call // that it carries
}

// Once: the client must not send the command again by itself, whatever its options say: after a time-out it
// would arrive when the caller is long gone and has released what it asked for.
func (c *Command) Once() bool { return c.calls != nil }

// Goes notes that the command is written. It is false for a call that was given up before.
func (c *Command) Goes() bool {
	for _, call := range c.calls {
		if !call.fate.CompareAndSwap(unsent, sent) && call.fate.Load() == void {
			return false
		}
	}
	return true
}

// Text is a reply of text, "" without one.
func (c *Command) Text() string {
	text, _ := c.Reply.(string)
	return text
}

// Int is a reply that is a number.
func (c *Command) Int() (int64, error) {
	n, ok := c.Reply.(int64)
	if c.Err == nil && !ok {
		return 0, ErrReply
	}
	return n, c.Err
}

// Plain is a command that the client may send again.
func Plain(args ...any) Command { return Command{Args: args} }

// Ask runs commands, each of which has an error of its own then. The error is ctx's.
func Ask(ctx context.Context, c Client, cmds []Command) error {
	_, err := Await(ctx, func(ctx context.Context) (any, error) { _ = c.Run(ctx, cmds); return nil, nil })
	return err
}

// Subscription is a connection for messages.
type Subscription interface {
	// Send writes subscribe, ssubscribe, unsubscribe, sunsubscribe or ping. Receive has the answers, in order.
	Send(ctx context.Context, command string, channels ...string) error
	// Receive returns what comes next, or an error that is a time-out's, a [ServerError] that is the answer to a command, or the end.
	Receive(ctx context.Context, timeout time.Duration) (Message, error)
	// Close ends a Receive.
	Close() error
}

// Message is what came over a Subscription.
type Message struct {
	Kind             string // Redis's: message, subscribe, ssubscribe, unsubscribe, sunsubscribe; "": any other
	Channel, Payload string
}

// ServerError is what the server said. The errors of a Client have the method, as go-redis's do.
type ServerError interface {
	error
	RedisError()
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The errors of go-redis that every Client uses.
var (
	ErrClosed        = redis.ErrClosed // the program closed its client
	ErrPoolTimeout   = redis.ErrPoolTimeout
	errPoolExhausted = redis.ErrPoolExhausted
	Nil              = redis.Nil
)

// goRedis is a client of go-redis.
type goRedis struct {
	redis.UniversalClient
	cluster *redis.ClusterClient // if it is one
}

// GoRedis returns the Client that is a client of go-redis.
func GoRedis(rdb redis.UniversalClient) Client {
	c, _ := rdb.(*redis.ClusterClient)
	return &goRedis{rdb, c}
}

func (g *goRedis) Traits() Traits {
	t, none := Traits{Kind: fmt.Sprintf("%T", g.UniversalClient)}, g.UniversalClient == nil
	switch c := g.UniversalClient.(type) {
	case *redis.Client:
		if t.Waits, none = true, c == nil; !none {
			t.Deadlines, t.ReadTimeout = c.Options().ContextTimeoutEnabled, c.Options().ReadTimeout
		}
	case *redis.ClusterClient:
		if t.Waits, t.Cluster, none = true, true, c == nil; !none {
			t.ReadTimeout = c.Options().ReadTimeout
		}
	case *redis.Ring:
		t.Unusable = &ConfigError{Why: "a redis.Ring moves keys to another server when one fails, so two clients " +
			"could hold one lock: use a redis.Client, or package quorum over several"}
	}
	if none {
		t.Unusable = &ConfigError{Why: "the client is nil"}
	}
	return t
}

func (g *goRedis) Run(ctx context.Context, cmds []Command) error {
	if len(cmds) == 1 {
		var c command
		c.init(ctx, &cmds[0])
		err := g.Process(ctx, &c)
		c.done(err)
		return err
	}
	p, all := g.Pipeline(), make([]command, len(cmds))
	for i := range all {
		all[i].init(ctx, &cmds[i])
		_ = p.Process(ctx, &all[i]) // is queued only: its outcome is the command's own
	}
	_, err := p.Exec(ctx)
	for i := range all {
		all[i].done(err)
	}
	return err
}

// command is a Command as go-redis has it.
type command struct {
	redis.Cmd
	of *Command
}

func (c *command) init(ctx context.Context, of *Command) {
	c.Cmd, c.of = *redis.NewCmd(ctx, of.Args...), of
	if of.Once() {
		c.SetFirstKeyPos(3)
	}
}

// done says what became of it; all is what became of its pipeline.
func (c *command) done(all error) {
	reply, err := c.Result()
	if err == nil && reply == nil {
		// A connection that the server refused to set up (a wrong password)
		// leaves a pipeline's commands without an answer.
		err = cmp.Or(all, ErrReply)
	}
	c.of.Reply, c.of.Err = reply, err
}

func (c *command) NoRetry() bool { return c.of.Once() }

// Args is what the client asks for when it writes. A call that was given up before
// is not sent even then, by a hook that goes on after its caller: PING is.
func (c *command) Args() []any {
	if !c.of.Goes() {
		return []any{"ping"}
	}
	return c.Cmd.Args()
}

func (c *command) Clone() redis.Cmder {
	var again command
	again.init(context.Background(), c.of)
	return &again
}

func (g *goRedis) Masters(ctx context.Context, key string) (nodes []Client, err error) {
	if g.cluster == nil {
		return []Client{g}, nil
	}
	if key != "" {
		node, err := g.cluster.MasterForKey(ctx, key)
		return []Client{GoRedis(node)}, err
	}
	var mu sync.Mutex
	err = g.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, GoRedis(node))
		return nil
	})
	return nodes, err
}

func (g *goRedis) LookAgain(ctx context.Context) {
	if g.cluster != nil {
		g.cluster.ReloadState(ctx)
	}
}

func (g *goRedis) Subscription(ctx context.Context) Subscription {
	return goSubscription{g.Subscribe(ctx)}
}

// goSubscription is a subscription of go-redis.
type goSubscription struct{ *redis.PubSub }

func (s goSubscription) Send(ctx context.Context, command string, channels ...string) error {
	switch command {
	case "subscribe":
		return s.Subscribe(ctx, channels...)
	case "ssubscribe":
		return s.SSubscribe(ctx, channels...)
	case "unsubscribe":
		return s.Unsubscribe(ctx, channels...)
	case "sunsubscribe":
		return s.SUnsubscribe(ctx, channels...)
	}
	return s.Ping(ctx)
}

func (s goSubscription) Receive(ctx context.Context, timeout time.Duration) (Message, error) {
	m, err := s.ReceiveTimeout(ctx, timeout)
	switch m := m.(type) {
	case *redis.Message:
		return Message{"message", m.Channel, m.Payload}, err
	case *redis.Subscription:
		return Message{Kind: m.Kind, Channel: m.Channel}, err
	}
	return Message{}, err
}

// SentinelsError is of Sentinels of which none said which server is the master.
type SentinelsError struct{ said []error }

func (e *SentinelsError) Error() string {
	return "redis: no Sentinel says which server is the master: " + errors.Join(e.said...).Error()
}

func (e *SentinelsError) Unwrap() []error { return e.said }

// noMaster: no Sentinel names a master.
func noMaster(err error) bool {
	return errors.As(err, new(*SentinelsError)) || strings.Contains(err.Error(), "sentinels specified in configuration are unreachable")
}

// Explained is the error of a call, in words of ours where go-redis's mislead: it says of Sentinels that refuse a login, or know no master
// by a name, that they cannot be reached. A Sentinel that cannot be reached may know it.
func Explained(err error) error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !noMaster(err) || !errors.As(err, &joined) {
		return err
	}
	for _, said := range joined.Unwrap() {
		if said != redis.Nil { //nolint:errorlint // the value itself: it is what one Sentinel answered
			return &SentinelsError{joined.Unwrap()}
		}
	}
	return errNoMaster
}

var errNoMaster = errors.New("redis: the Sentinels know no master by the name that the client has for it: SENTINEL MASTERS lists those that they know")

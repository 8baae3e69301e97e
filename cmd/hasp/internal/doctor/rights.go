// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// right is one that an ACL grants, and a command that is refused without it and
// changes nothing.
type right struct {
	name string // as ACL SETUSER has it
	ask  func(key string) []any
}

func asks(args ...any) func(string) []any {
	return func(key string) []any { return append([]any{args[0], key}, args[1:]...) }
}

func asksAs(args ...any) func(string) []any { return func(string) []any { return args } }

// needed are the commands without which nothing can be locked, including those of the
// scripts: a script's own failure does not say which one it was.
var needed = []right{
	{"+evalsha", asksAs("EVALSHA", strings.Repeat("0", 40), 0)},
	{"+eval", asksAs("EVAL", "return 1", 0)},
	{"+ping", asksAs("PING")},
	{"+time", asksAs("TIME")},
	{"+type", asks("TYPE")},
	{"+exists", asks("EXISTS")},
	{"+get", asks("GET")},
	{"+mget", asks("MGET")},
	{"+getrange", asks("GETRANGE", 0, 0)},
	{"+set", asks("SET", "", "XX")},
	{"+del", asks("DEL")},
	{"+pttl", asks("PTTL")},
	{"+pexpire", asks("PEXPIRE", 1)},
	{"+zadd", asks("ZADD", "XX", 0, "m")},
	{"+zrem", asks("ZREM", "m")},
	{"+zscore", asks("ZSCORE", "m")},
	{"+zrank", asks("ZRANK", "m")},
	{"+zrange", asks("ZRANGE", 0, 0)},
	{"+zcount", asks("ZCOUNT", 0, 0)},
	{"+zcard", asks("ZCARD")},
	{"+hset", asks("HSET", "f", "v", "a field without a value")}, // refused for that, if not before
	{"+hget", asks("HGET", "f")},
	{"+hmget", asks("HMGET", "f")},
	{"+hdel", asks("HDEL", "f")},
}

// neededInCluster are those that a client of a cluster needs in addition.
var neededInCluster = []right{
	{"+cluster|slots", asksAs("CLUSTER", "SLOTS")},
	{"+command", asksAs("COMMAND")},
	{"+asking", asksAs("ASKING")}, // for a slot that moves
}

// rights finds out which rights are missing.
func (f *Facts) rights(ctx context.Context, rdb *redis.Client) {
	key := "hasp.doctor:" + rand.Text() // beside locks; nobody else's
	all, cluster := needed, f.Info["cluster_enabled"] == "1"
	if cluster {
		all = slices.Concat(needed, neededInCluster)
	}
	p := rdb.Pipeline()
	for _, r := range all {
		p.Do(ctx, r.ask(key)...)
	}
	cmds, _ := p.Exec(ctx) // each command has its own error
	for i, cmd := range cmds {
		f.lacks(all[i].name, cmd.Err())
	}
	if f.InfoErr != nil && denied(f.InfoErr) {
		f.Denied["INFO"] = f.InfoErr
	}
	hears := func(subscribe func(context.Context, ...string) *redis.PubSub) func() error {
		return func() error {
			sub := subscribe(ctx, channel)
			defer sub.Close()
			_, err := sub.Receive(ctx)
			return err
		}
	}
	optional := map[string]func() error{
		"SCAN":      func() error { return rdb.Scan(ctx, 0, channel, 1).Err() },
		"WAIT":      func() error { return rdb.Do(ctx, "WAIT", 0, 1).Err() },
		"PUBLISH":   func() error { return rdb.Publish(ctx, channel, "").Err() },
		"SUBSCRIBE": hears(rdb.Subscribe),
	}
	if cluster { // which node has the channel is not asked before the right
		optional["SPUBLISH"] = func() error { return rdb.SPublish(ctx, channel, "").Err() }
		optional["SSUBSCRIBE"] = hears(rdb.SSubscribe)
	}
	for name, ask := range optional {
		if err := ask(); denied(err) {
			f.Denied[name] = err
		}
	}
}

// lacks notes the right that an error says is missing.
func (f *Facts) lacks(command string, err error) {
	switch {
	case !denied(err):
		return
	case !aboutCommand(err):
		command = "~hasp.*"
	}
	if !slices.Contains(f.Missing, command) {
		f.Missing = append(f.Missing, command)
	}
}

func denied(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOPERM") }

// aboutCommand tells a command that may not be used from a key or a channel. The
// server looks at the command first.
func aboutCommand(err error) bool { return strings.Contains(err.Error(), "permissions to run") }

// grants is the right that ends a denial of an optional command.
func grants(name string, err error) string {
	if !aboutCommand(err) {
		return "&hasp.*"
	}
	return "+" + strings.ToLower(name)
}

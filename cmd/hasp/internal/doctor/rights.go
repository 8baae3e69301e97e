// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/go-redis/v9"
)

// Rights are those that a layout of locks takes of a Redis user.
type Rights struct {
	Cluster  bool      // it is a cluster, whatever INFO says, which may not be allowed
	commands []right   // without which nothing can be locked, or looked at
	keys     []pattern // the same of keys, beside the locks' own
	channels []pattern // of messages
	each     bool      // each lock has a channel of its own, which is left again; in a cluster all of them are sharded
}

// right is what an ACL grants, and a command that is refused without it and changes
// nothing.
type right struct {
	name string // as ACL SETUSER has it
	ask  func(key string) []any
}

// pattern is what an ACL has of some names, and one of them, which no client uses.
type pattern struct{ name, example string }

func asks(args ...any) func(string) []any {
	return func(key string) []any { return append([]any{args[0], key}, args[1:]...) }
}

func asksAs(args ...any) func(string) []any { return func(string) []any { return args } }

// pushes asks for a command that appends to a list, and would always change something: a script removes it again at once. A script is
// told "can't run this command", or from 7.2 on "ACL failure", where a client is told NOPERM.
func pushes(command string) func(string) []any {
	const script = `if redis.call('EXISTS', KEYS[1]) == 0 and redis.call('DEL', KEYS[1]) == 0 then
  local r = redis.pcall(ARGV[1], KEYS[1], '')
  redis.call('DEL', KEYS[1])
  if type(r) == 'table' and r.err and (string.find(r.err, "can't run") or string.find(r.err, 'no permissions')) then
    return redis.error_reply('NOPERM this user has no permissions to run the ' .. ARGV[1] .. ' command')
  end
end`
	return func(key string) []any { return []any{"EVAL", script, 1, key, command} }
}

// always are the commands of every layout, including those of the scripts: a script's own failure does not say which one it was.
var always = []right{
	{"+evalsha", asksAs("EVALSHA", strings.Repeat("0", 40), 0)},
	{"+eval", asksAs("EVAL", "return 1", 0)},
	{"+ping", asksAs("PING")},
	{"+time", asksAs("TIME")},
	{"+type", asks("TYPE")},
	{"+exists", asks("EXISTS")},
	{"+set", asks("SET", "", "XX")},
	{"+del", asks("DEL")},
	{"+pttl", asks("PTTL")},
	{"+pexpire", asks("PEXPIRE", 1)},
}

// hashes are commands of hashes, which every layout has, too.
var hashes = []right{
	{"+hset", asks("HSET", "f", "v", "a field without a value")}, // refused for that, if not before
	{"+hget", asks("HGET", "f")},
	{"+hdel", asks("HDEL", "f")},
}

var get = right{"+get", asks("GET")}

// sets are commands of sorted sets.
var sets = []right{
	{"+zadd", asks("ZADD", "XX", 0, "m")},
	{"+zrem", asks("ZREM", "m")},
	{"+zscore", asks("ZSCORE", "m")},
}

// beside are hasp's own names beside locks. No client listens on the channel.
var beside = pattern{"hasp.*", "hasp.inbox:doctor"}

// Canonical are the rights that hasp's own layout takes.
func Canonical() Rights {
	return Rights{channels: []pattern{beside}, commands: slices.Concat(always, sets, hashes, []right{
		get,
		{"+mget", asks("MGET")},
		{"+getrange", asks("GETRANGE", 0, 0)},
		{"+zrank", asks("ZRANK", "m")},
		{"+zrange", asks("ZRANGE", 0, 0)},
		{"+zcard", asks("ZCARD")},
		{"+zcount", asks("ZCOUNT", 0, 0)},
		{"+hmget", asks("HMGET", "f")},
	})}
}

// Redisson are the rights that Redisson's locks of this kind take, with names that begin with prefix.
func Redisson(kind redisson.Kind, prefix string) Rights {
	name := prefix + "doctor/" + rand.Text()
	tagged := name // as Redisson has it within other names
	if !strings.Contains(name, "{") {
		tagged = "{" + name + "}"
	}
	channel := pattern{"redisson_lock__channel:*", "redisson_lock__channel:" + tagged}
	r := Rights{each: true, commands: slices.Concat(always, hashes, []right{
		{"+hexists", asks("HEXISTS", "f")},
		{"+hkeys", asks("HKEYS")},
		{"+hlen", asks("HLEN")},
		{"+hstrlen", asks("HSTRLEN", "f")},
		{"+hrandfield", asks("HRANDFIELD", 1)},
	})}
	increases := right{"+hincrby", asks("HINCRBY", "f", "no number")}
	switch kind {
	case redisson.Lock:
		r.commands = append(r.commands, increases)
	case redisson.Fenced:
		r.commands = append(r.commands, increases, get, right{"+incrby", asks("INCRBY", "no number")})
		r.keys = []pattern{{"redisson_lock_token:*", "redisson_lock_token:" + tagged}}
	case redisson.Fair:
		r.commands = slices.Concat(r.commands, sets, []right{
			increases,
			{"+hmget", asks("HMGET", "f")},
			{"+lindex", asks("LINDEX", 0)},
			{"+linsert", asks("LINSERT", "BEFORE", "a", "b")},
			{"+llen", asks("LLEN")},
			{"+lpos", asks("LPOS", "a")},
			{"+lpush", pushes("LPUSH")},
			{"+lrange", asks("LRANGE", 0, 0)},
			{"+lrem", asks("LREM", 0, "a")},
			{"+ltrim", asks("LTRIM", 0, -1)},
			{"+rpush", pushes("RPUSH")},
		})
		r.keys = []pattern{{"redisson_lock_queue:*", "redisson_lock_queue:" + tagged}, {"redisson_lock_timeout:*", "redisson_lock_timeout:" + tagged}}
	case redisson.ReadWrite:
		channel = pattern{"redisson_rwlock:*", "redisson_rwlock:" + tagged}
		r.commands = append(r.commands, right{"+hgetall", asks("HGETALL")})
		r.keys = []pattern{{"{*}:*:rwlock_timeout:*", tagged + ":doctor:rwlock_timeout:1"}}
	}
	r.channels = []pattern{beside, channel}
	return r
}

// neededInCluster are those that a client of a cluster needs in addition.
var neededInCluster = []right{
	{"+cluster|slots", asksAs("CLUSTER", "SLOTS")},
	{"+command", asksAs("COMMAND")},
	{"+asking", asksAs("ASKING")}, // for a slot that moves
}

// rights finds out which rights are missing.
func (f *Facts) rights(ctx context.Context, rdb *redis.Client, needed Rights) {
	key := "hasp.doctor:" + rand.Text() // beside locks; no other client uses it
	all, cluster := needed.commands, needed.Cluster || f.Info["cluster_enabled"] == "1"
	if cluster {
		all = slices.Concat(all, neededInCluster)
	}
	p := rdb.Pipeline()
	for _, r := range all {
		p.Do(ctx, r.ask(key)...)
	}
	for _, k := range needed.keys {
		p.Do(ctx, "EXISTS", k.example)
	}
	cmds, _ := p.Exec(ctx) // each command has its own error
	for i, cmd := range cmds {
		if i < len(all) {
			f.lacks(all[i].name, "~hasp.*", cmd.Err())
		} else {
			f.lacks("+exists", "~"+needed.keys[i-len(all)].name, cmd.Err())
		}
	}
	if f.InfoErr != nil && denied(f.InfoErr) {
		f.Denied["INFO"] = f.InfoErr
	}
	f.may("SCAN", func(string) error { return rdb.Scan(ctx, 0, beside.example, 1).Err() }, beside)
	f.may("WAIT", func(string) error { return rdb.Do(ctx, "WAIT", 0, 1).Err() }, beside)
	hears := func(subscribe func(context.Context, ...string) *redis.PubSub) func(string) error {
		return func(channel string) error {
			sub := subscribe(ctx, channel)
			defer sub.Close()
			_, err := sub.Receive(ctx)
			return err
		}
	}
	if needed.each {
		name, leave := "UNSUBSCRIBE", (*redis.PubSub).Unsubscribe
		if cluster {
			name, leave = "SUNSUBSCRIBE", (*redis.PubSub).SUnsubscribe
		}
		f.may(name, func(channel string) error {
			sub := rdb.Subscribe(ctx)
			defer sub.Close()
			err := leave(sub, ctx, channel) // without a subscription it is confirmed as well
			if err == nil {
				_, err = sub.Receive(ctx)
			}
			return err
		}, beside)
	}
	if !cluster || !needed.each {
		f.may("PUBLISH", func(channel string) error { return rdb.Publish(ctx, channel, "").Err() }, needed.channels...)
		f.may("SUBSCRIBE", hears(rdb.Subscribe), needed.channels...)
	}
	if cluster { // which node has the channel is not asked before the right
		f.may("SPUBLISH", func(channel string) error { return rdb.SPublish(ctx, channel, "").Err() }, needed.channels...)
		f.may("SSUBSCRIBE", hears(rdb.SSubscribe), needed.channels...)
	}
}

// may asks for an optional command, and notes when it is not allowed.
func (f *Facts) may(name string, ask func(example string) error, on ...pattern) {
	for _, p := range on {
		err := ask(p.example)
		if !denied(err) {
			continue
		}
		f.Denied[name] = err
		if aboutCommand(err) {
			return
		}
		f.Closed[name] = append(f.Closed[name], "&"+p.name)
	}
}

// lacks notes the right that an error says is missing: to a command, or to its key.
func (f *Facts) lacks(command, key string, err error) {
	switch {
	case !denied(err):
		return
	case !aboutCommand(err):
		command = key
	case strings.Contains(err.Error(), "'eval'"): // by which some commands are asked for
		command = "+eval"
	}
	if !slices.Contains(f.Missing, command) {
		f.Missing = append(f.Missing, command)
	}
}

func denied(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOPERM") }

// aboutCommand tells a command that may not be used from a key or a channel. The
// server looks at the command first.
func aboutCommand(err error) bool { return strings.Contains(err.Error(), "permissions to run") }

// grants are the rights that end a denial of an optional command.
func (f *Facts) grants(name string) string {
	if err := f.Denied[name]; aboutCommand(err) {
		return "+" + strings.ToLower(name)
	}
	return strings.Join(f.Closed[name], " ")
}

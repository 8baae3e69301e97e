// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/fence"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

var guardScript = load("guard", false)

// Guard is the storage's side of fences for data in Redis: it carries out commands in one step with the
// comparison of their fence, see package fence. The newest fence of a resource stands in the key
// hasp.guard:RESOURCE, without an expiry; a server that loses it, or evicts it, lets in a late write. Where the
// locks are in the same Redis, whatever loses the one loses the other.
//
// It can be used by several goroutines.
type Guard struct{ client wire.Client }

// NewGuard returns a guard for the data behind a client, which it never closes.
func NewGuard(rdb redis.UniversalClient) *Guard { return GuardOver(wire.GoRedis(rdb)) }

// GuardOver is [NewGuard] over another client, see [Over].
func GuardOver(c wire.Client) *Guard { return &Guard{c} }

// Command is a command of Redis and its arguments: Command{"HSET", "account:7", "balance", 90}.
type Command []any

// Write carries out commands, which use keys only that are named here, unless the fence is too small. In
// a cluster the resource and the keys must be in one slot. The error is a *[fence.StaleError], and then
// nothing was done, or Redis'. If one of the commands failed, those before it were done, and the fence counts: there is no rollback
// in Redis. After any other error the outcome is unknown, and go-redis may have sent it twice: to set a value again does no harm, to
// increment one does (redis.Options.MaxRetries).
func (g *Guard) Write(ctx context.Context, resource string, fence uint64, keys []string, commands ...Command) ([]any, error) {
	return g.do(ctx, "write", resource, fence, keys, commands)
}

// Read is Write for commands that only read. It is refused below the fence of a write, and raises nothing.
func (g *Guard) Read(ctx context.Context, resource string, fence uint64, keys []string, commands ...Command) ([]any, error) {
	return g.do(ctx, "read", resource, fence, keys, commands)
}

// Set sets a key, which is the resource as well. A ttl of 0 is none.
func (g *Guard) Set(ctx context.Context, key string, value any, ttl time.Duration, fence uint64) error {
	set := Command{"SET", key, value}
	if ttl > 0 {
		set = append(set, "PX", wire.Millis(ttl))
	}
	_, err := g.Write(ctx, key, fence, []string{key}, set)
	return err
}

// Get reads a key, which is the resource as well. The error is redis.Nil when it is not there.
func (g *Guard) Get(ctx context.Context, key string, fence uint64) (string, error) {
	replies, err := g.Read(ctx, key, fence, []string{key}, Command{"GET", key})
	if err != nil {
		return "", err
	}
	value, ok := replies[0].(string)
	if !ok {
		return "", wire.Nil
	}
	return value, nil
}

// Del deletes a key, which is the resource as well. Its fence stays.
func (g *Guard) Del(ctx context.Context, key string, fence uint64) error {
	_, err := g.Write(ctx, key, fence, []string{key}, Command{"DEL", key})
	return err
}

func (g *Guard) do(ctx context.Context, how, resource string, n uint64, keys []string, commands []Command) ([]any, error) {
	if err := fence.Check(resource, n, 0); err != nil {
		return nil, err
	}
	record := wire.Sidecars + "guard:" + wire.Beside(resource)
	args := []any{record}
	for _, key := range keys {
		args = append(args, key)
	}
	args = append(args, strconv.FormatUint(n, 10), how)
	for _, c := range commands {
		args = append(append(args, len(c)), c...)
	}
	v, err := guardScript.Run(ctx, g.client, 1+len(keys), args...)
	if err != nil {
		if _, text, ok := strings.Cut(err.Error(), "HASPDATA guard "); ok {
			return nil, strange(record, text, "write the largest fence there that the resource may have been written with")
		}
		return nil, fmt.Errorf("redis: commands with fence %d for %q: %w", n, resource, err)
	}
	r := wire.NewReply(v)
	if len(r.Fields) == 1 {
		newest, err := strconv.ParseUint(wire.Next[string](r), 10, 64)
		return nil, errors.Join(err, fence.Check(resource, n, newest))
	}
	_, replies := wire.Next[any](r), wire.Next[[]any](r)
	if len(replies) != len(commands) {
		return nil, fmt.Errorf("redis: commands with fence %d for %q: the answer is no answer of this script", n, resource)
	}
	return replies, nil
}

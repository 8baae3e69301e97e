// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire is what the drivers over Redis share, whatever they store there: calls of scripts that
// travel together, and their replies; subscriptions; the classes of errors; hash slots; reading the whole database.
package wire

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Await runs f, which may not heed its context, and returns when it did or ctx
// ended.
func Await[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ch := make(chan result, 1)
	go func() {
		v, err := f(ctx)
		ch <- result{v, err}
	}()
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// Carry carries parts out, so many at a time, and reports each when it is done. It returns when all are, or when ctx
// ended, and reports nothing after that.
func Carry[T any](ctx context.Context, parts []T, lanes int, carry, report func(T)) {
	work, ready := make(chan T, len(parts)), make(chan T, len(parts)) // room for all: none waits for a caller that has gone
	for _, part := range parts {
		work <- part
	}
	close(work)
	for range min(lanes, len(parts)) {
		go func() {
			for part := range work {
				carry(part)
				ready <- part
			}
		}()
	}
	for range parts {
		select {
		case part := <-ready:
			report(part)
		case <-ctx.Done():
			return
		}
	}
}

// Unusable says why a client cannot be used for locks.
func Unusable(rdb redis.UniversalClient) error {
	switch c := rdb.(type) {
	case nil:
		return &ConfigError{Why: "the client is nil"}
	case *redis.Client:
		if c == nil {
			return &ConfigError{Why: "the client is nil"}
		}
	case *redis.ClusterClient:
		if c == nil {
			return &ConfigError{Why: "the client is nil"}
		}
	case *redis.Ring:
		return &ConfigError{Why: "a redis.Ring moves keys to another server when one fails, so two clients " +
			"could hold one lock: use a redis.Client, or package quorum over several"}
	}
	return nil
}

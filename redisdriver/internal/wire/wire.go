// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire is what the drivers over Redis share, whatever they store there: calls of scripts that
// travel together, and their replies; subscriptions; the classes of errors; hash slots; reading the whole database.
package wire

import (
	"context"
	"iter"
	"sync"

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

// Scan reads the whole database, on every server that has keys, with SCAN in steps of count keys: no other client waits for
// all of it. It yields what read makes of each step's keys, all of which match the pattern (see Glob). A step
// may have none; a key may come twice, also within a step; a key that is added or deleted meanwhile may come or not.
// The first error ends it, after what read returned beside the error. The next step begins when the caller has taken
// all of this one's: a caller that wants to spare the server waits there, or in read.
func Scan[T any](
	ctx context.Context, rdb redis.UniversalClient, match string, count int64, read func(ctx context.Context, keys []string) ([]T, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		nodes, err := masters(ctx, rdb)
		if err != nil {
			yield(none, err)
			return
		}
		for _, node := range nodes {
			for cursor, begun := uint64(0), false; cursor != 0 || !begun; begun = true {
				var keys []string
				var found []T
				if keys, cursor, err = scan(ctx, node, cursor, match, count); err == nil {
					found, err = read(ctx, keys)
				}
				for _, f := range found {
					if !yield(f, nil) {
						return
					}
				}
				if err != nil {
					yield(none, err)
					return
				}
			}
		}
	}
}

// scan takes one step on one server. The next one's cursor is 0 after the last.
func scan(ctx context.Context, node redis.Cmdable, cursor uint64, match string, count int64) ([]string, uint64, error) {
	type page struct {
		keys []string
		next uint64
	}
	p, err := Await(ctx, func(ctx context.Context) (p page, err error) {
		p.keys, p.next, err = node.Scan(ctx, cursor, match, count).Result()
		return p, err
	})
	return p.keys, p.next, err
}

// masters returns every server that has keys.
func masters(ctx context.Context, rdb redis.UniversalClient) ([]redis.Cmdable, error) {
	c, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{rdb}, nil
	}
	return Await(ctx, func(ctx context.Context) (nodes []redis.Cmdable, err error) {
		var mu sync.Mutex
		err = c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, node)
			return nil
		})
		return nodes, err
	})
}

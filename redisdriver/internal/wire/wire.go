// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire is what the drivers over Redis share, whatever they store there: calls of scripts that
// travel together, and their replies; subscriptions; the classes of errors; hash slots; reading the whole database.
package wire

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"time"
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

// Renewals leave in pipelines of up to PerPipe scripts, CarryLanes of them at once.
const (
	PerPipe    = 16
	CarryLanes = 2
)

// Carry sends a call of each job, tells took how long an answer took, and reports each job when its pipeline is done; before that it calls
// settle, which may ask once more. It returns when all are, or when ctx ended, and reports nothing after that.
func Carry[J any](
	ctx context.Context, s *Sender, took func(time.Duration), jobs []J, call func(J) (c *Call, hashSlot int), settle, report func(J),
) {
	slotOf := func(j J) int { _, hashSlot := call(j); return hashSlot }
	slices.SortStableFunc(jobs, func(a, b J) int { return cmp.Compare(slotOf(a), slotOf(b)) }) // neighbours share a node
	size, lanes := PerPipe, CarryLanes
	if s.traits.Cluster { // a node that hangs must not keep the others' leases waiting
		size, lanes = 1, len(jobs)
	}
	carry := func(part []J) {
		calls, ended := make([]*Call, len(part)), ctx.Err()
		for i, j := range part {
			calls[i], _ = call(j)
			calls[i].Err = ended
		}
		if ended != nil {
			return // nothing was sent, and every job says so
		}
		begun := time.Now()
		for s.Exec(ctx, calls); errors.Is(calls[0].Err, ErrPoolTimeout) && ctx.Err() == nil; s.Exec(ctx, calls) {
			// A cluster's lanes can be more than its pools have connections, and wait their turn for longer than a pool bears.
		}
		if calls[0].Err == nil {
			took(time.Since(begun))
		}
		for _, j := range part {
			settle(j)
		}
	}
	parts := slices.Collect(slices.Chunk(jobs, size))
	work, ready := make(chan []J, len(parts)), make(chan []J, len(parts)) // room for all: none waits for a caller that has gone
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
			for _, job := range part {
				report(job)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Scan reads the whole database, on every server that has keys, with SCAN in steps of count keys: no other client waits for
// all of it. It yields what read makes of each step's keys, all of which match the pattern (see Glob). A step
// may have none; a key may come twice, also within a step; a key that is added or deleted meanwhile may come or not.
// The first error ends it, after what read returned beside the error. The next step begins when the caller has taken
// all of this one's: a caller that wants to spare the server waits there, or in read.
func Scan[T any](
	ctx context.Context, c Client, match string, count int64, read func(ctx context.Context, keys []string) ([]T, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		nodes, err := Await(ctx, func(ctx context.Context) ([]Client, error) { return c.Masters(ctx, "") })
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
func scan(ctx context.Context, node Client, cursor uint64, match string, count int64) (keys []string, next uint64, err error) {
	cmds := []Command{Plain("scan", cursor, "match", match, "count", count)}
	if err = Ask(ctx, node, cmds); err == nil {
		err = cmds[0].Err
	}
	if err != nil {
		return nil, 0, err
	}
	r := NewReply(cmds[0].Reply)
	next, err = strconv.ParseUint(Next[string](r), 10, 64)
	for all := NewReply(Next[[]any](r)); len(all.Fields) > 0; r.Bad = r.Bad || all.Bad {
		keys = append(keys, Next[string](all))
	}
	if r.Bad || err != nil {
		return nil, 0, ErrReply
	}
	return keys, next, nil
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// joiner records what it is asked, and has the trait JoinFirst or not.
type joiner struct {
	*memdriver.Store
	first bool
	mu    sync.Mutex
	calls []string
}

func (j *joiner) Traits() driver.Traits {
	t := j.Store.Traits()
	t.JoinFirst = j.first
	return t
}

func (j *joiner) call(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls = append(j.calls, what)
}

func (j *joiner) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	what := "try"
	if r.Queue {
		what = "join"
	}
	j.call(what)
	return j.Store.Try(ctx, r)
}

func (j *joiner) Watch(ctx context.Context, c driver.Claim) (<-chan struct{}, error) {
	j.call("watch")
	return j.Store.Watch(ctx, c)
}

// A Lock asks without the queue and watches before it joins, unless the store says that it may join at once; a TryLock never joins.
func TestJoinFirst(t *testing.T) {
	for first, want := range map[bool][]string{false: {"try", "watch", "join"}, true: {"join", "watch"}} {
		synctest.Test(t, func(t *testing.T) {
			d := &joiner{Store: memdriver.New(), first: first}
			c, err := hasp.New(d, nil)
			need(t, err)
			defer c.Close()
			held, err := c.Mutex("k", nil).TryLock(t.Context())
			need(t, err)
			failIf(t, !slices.Equal(d.calls, []string{"try"}), "JoinFirst %v: a TryLock asks %q", first, d.calls)
			d.calls = nil
			got := make(chan error)
			go func() {
				l, err := c.Mutex("k", nil).Lock(t.Context())
				if err == nil {
					err = l.Release()
				}
				got <- err
			}()
			synctest.Wait()
			release(t, held)
			check(t, <-got)
			if !slices.Equal(d.calls, want) {
				t.Errorf("JoinFirst %v: a Lock that waits asks %q, want %q", first, d.calls, want)
			}
		})
	}
}

// Who goes on in the place of a cohort's leader that gave up asks with that place, from the first Try on.
func TestNextLeaderAsksWithThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &joiner{Store: newStore()}
		c := newClient(t, d, nil)
		blocker := lock(t, newClient(t, d.Store, nil), "k", nil)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := c.Mutex("k", inCohort).Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		got := queueUp(t, c, 1, inCohort)
		d.calls = nil
		cancel()
		wantIs(t, <-failed, context.Canceled)
		synctest.Wait()
		failIf(t, len(d.calls) == 0 || slices.Contains(d.calls, "try"), "the next leader asked %q", d.calls)
		release(t, blocker)
		release(t, <-got)
	})
}

// A wait that ends while the store is asked for hints asks for nothing more.
func TestEndBeforeTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: &joiner{Store: newStore()}}
		d.watch = func(ctx context.Context, _ driver.Claim, _ watchFunc) (<-chan struct{}, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := newClient(t, d, nil)
		held := lock(t, c, "k", nil)
		before := d.tries.Load()
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := c.Mutex("k", nil).Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		wantIs(t, <-failed, context.Canceled, hasp.ErrHeld)
		failIf(t, d.tries.Load()-before != 1, "it asked %d times", d.tries.Load()-before)
		release(t, held)
	})
}

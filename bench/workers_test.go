// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeLocker is a locker that does not exclude, or fails.
type fakeLocker struct {
	lock, unlock error
}

func (s fakeLocker) Lock(context.Context, string) (unlock, error) {
	return func(context.Context) error { return s.unlock }, s.lock
}

func (fakeLocker) Close() error { return nil }

// unfairLocker is a lock whose holder takes it again past the waiters, for a second.
type unfairLocker struct {
	mu    sync.Mutex
	taken bool
}

func (b *unfairLocker) Lock(ctx context.Context, _ string) (unlock, error) {
	for {
		b.mu.Lock()
		free := !b.taken
		b.taken = true
		b.mu.Unlock()
		if free {
			return func(context.Context) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.taken = false
				return nil
			}, nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (*unfairLocker) Close() error { return nil }

func newWorkers(n int, l locker) *workers {
	g := new(guard)
	c := &workers{hold: time.Millisecond}
	for range n {
		c.list = append(c.list, &worker{locker: l, key: "k", guard: g})
	}
	return c
}

func TestWorkFindsTheFaults(t *testing.T) {
	fault := errors.New("a fault")
	for _, c := range []struct {
		what   string
		locker locker
		want   error
	}{
		{"a lock that does not exclude", fakeLocker{}, errTwoHolders},
		{"a Lock that fails", fakeLocker{lock: fault}, fault},
		{"a release that fails", fakeLocker{unlock: errLost}, errLost},
		{"a good lock", localLocker{}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := 2
			if c.locker == (fakeLocker{unlock: errLost}) {
				n = 1
			}
			try := func(t *testing.T) {
				if _, err := newWorkers(n, c.locker).work(t.Context(), 50*time.Millisecond, nil); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			}
			if c.want == nil { // a mutex, which is not for bubbles
				try(t)
			} else {
				synctest.Test(t, try)
			}
		})
	}
}

// Many may share, up to a limit; one that does not share is alone.
func TestGuard(t *testing.T) {
	const read, write = true, false
	for what, c := range map[string]struct {
		limit  int32
		inside []bool
		enters bool
		want   error
	}{
		"the first":                  {enters: write},
		"a second writer":            {inside: []bool{write}, enters: write, want: errTwoHolders},
		"a reader beside a writer":   {inside: []bool{write}, enters: read, want: errTwoHolders},
		"a writer beside a reader":   {inside: []bool{read}, enters: write, want: errTwoHolders},
		"a reader beside readers":    {inside: []bool{read, read}, enters: read},
		"the last within a limit":    {limit: 3, inside: []bool{read, read}, enters: read},
		"one more than the limit is": {limit: 2, inside: []bool{read, read}, enters: read, want: errTwoHolders},
	} {
		g := &guard{limit: c.limit}
		for _, shared := range c.inside {
			if err := g.enter(shared); err != nil {
				t.Errorf("%s: %v before", what, err)
			}
		}
		if err := g.enter(c.enters); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		g.leave(c.enters)
		for _, shared := range c.inside {
			g.leave(shared)
		}
		if err := g.enter(write); err != nil {
			t.Errorf("%s: when all had left: %v", what, err)
		}
	}
}

// rw is a locker that everybody shares.
type rw struct{ fakeLocker }

func (rw) RLock(context.Context, string) (unlock, error) {
	return func(context.Context) error { return nil }, nil
}

// Reads share, and a locker that excludes nobody is found by its writes.
func TestWorkReads(t *testing.T) {
	for what, want := range map[string]error{"reads only": nil, "some write": errTwoHolders} {
		synctest.Test(t, func(t *testing.T) {
			c := newWorkers(3, rw{})
			for _, h := range c.list {
				h.reads = func(turn int) bool { return want == nil || turn%2 == 0 }
			}
			if _, err := c.work(t.Context(), 50*time.Millisecond, nil); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
			if n := c.list[0].writes.count; (n > 0) != (want != nil) {
				t.Errorf("%s: %d waits to write", what, n)
			}
		})
	}
}

// A client that takes the key again and again hands nothing off, and the wait of one that
// is never granted it counts.
func TestWorkCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorkers(2, &unfairLocker{})
		asked := false
		took, err := c.work(t.Context(), 500*time.Millisecond+time.Microsecond, func() error { asked = true; return nil })
		if err != nil || !asked || took != 500*time.Millisecond+time.Microsecond {
			t.Fatalf("%v, asked at the end: %v, %v", took, asked, err)
		}
		lucky, other := c.list[0], c.list[1]
		if lucky.grants == 0 {
			lucky, other = other, lucky
		}
		if lucky.grants < 499 || lucky.handoffs != 1 || lucky.pairs.count != lucky.grants {
			t.Errorf("the lucky one: %d grants, %d handoffs, %d pairs", lucky.grants, lucky.handoffs, lucky.pairs.count)
		}
		if other.grants != 0 || other.waits.count != 1 || other.waits.longest != took {
			t.Errorf("the other one: %d grants, %d waits, the longest %v", other.grants, other.waits.count, other.waits.longest)
		}
	})
}

// A first attempt that waits for ever is tried again.
func TestWarmTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &unfairLocker{taken: true} // nobody releases it
		if err := newWorkers(1, l).warm(t.Context(), 1, 1); !errors.Is(err, errNotWarm) {
			t.Errorf("got %v, want %v", err, errNotWarm)
		}
		l.taken = false
		if err := newWorkers(3, l).warm(t.Context(), 2, 1); err != nil {
			t.Error(err)
		}
	})
}

func TestMany(t *testing.T) {
	seen := make([]atomic.Bool, 5_000)
	if err := many(len(seen), func(i int) error {
		if seen[i].Swap(true) {
			t.Errorf("index %d twice", i)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for i := range seen {
		if !seen[i].Load() {
			t.Errorf("index %d was left out", i)
		}
	}
	wrong := errors.New("wrong")
	if err := many(len(seen), func(i int) error {
		if i == 100 {
			return wrong
		}
		return nil
	}); !errors.Is(err, wrong) {
		t.Errorf("the error is %v, want %v", err, wrong)
	}
}

// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func init() { waiters = 100 }

func TestS5(t *testing.T) { smoke(t, &s5, variant{n: 2}, baseline, "redsync", "etcd") }

// The waiters are cancelled once all are in the queue, or the queue stops growing.
func TestQueueIsFull(t *testing.T) {
	for name, c := range map[string]struct {
		grow  int // a second
		until int
		whole bool
		want  time.Duration
	}{
		"all":                    {1000, 1000, false, time.Second},
		"all, each in the store": {1000, 1000, true, time.Second + heard},
		"some in the process":    {1000, 500, false, 500*time.Millisecond + settled},
		"all, slowly":            {1, 1000, true, 1000*time.Second + heard},
		"none":                   {0, 0, false, settled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				l := &queue{whole: c.whole, count: func(context.Context) (int, error) {
					return min(int(time.Since(start).Seconds()*float64(c.grow)), c.until), nil
				}}
				if c.grow == 0 {
					l.count = nil
				}
				if err := l.full(t.Context(), 1000, nil); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < c.want || took > c.want+20*time.Millisecond {
					t.Errorf("it took %v, want %v", took, c.want)
				}
			})
		})
	}
}

// A waiter that fails on the way is what the scenario says, however long the others take.
func TestQueueIsNeverFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, early, broken := &queue{whole: true, count: func(context.Context) (int, error) { return 1, nil }}, make(chan error, 1), errors.New("broken")
		early <- broken
		if err := l.full(t.Context(), 2, early); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	})
}

func TestQueueClears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, n := time.Now(), 3
		l := &queue{count: func(context.Context) (int, error) {
			if time.Since(start) >= time.Second {
				n = 0
			}
			return n, nil
		}}
		if err := l.clear(t.Context()); err != nil || time.Since(start) < time.Second {
			t.Errorf("clear after %v: %v", time.Since(start), err)
		}
		l.count = func(context.Context) (int, error) { return 3, nil }
		ctx, cancel := limited(t.Context(), time.Second)
		defer cancel()
		if err := l.clear(ctx); err == nil {
			t.Error("no error about a queue that is never empty")
		}
	})
}

// A limit ends a context without giving it a deadline.
func TestLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := limited(t.Context(), time.Minute)
		defer cancel()
		if _, ok := ctx.Deadline(); ok {
			t.Error("it has a deadline")
		}
		<-ctx.Done()
		if err := context.Cause(ctx); errors.Is(err, context.Canceled) {
			t.Errorf("its cause does not say why: %v", err)
		}
	})
}

// A waiter that is granted a held key is an error.
func TestWaitInVain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	key := hotKey
	t.Cleanup(func() { localMutexes.Delete(key) })
	if err := waitUngranted(ctx, localLocker{}); !errors.Is(err, errTwoHolders) {
		t.Errorf("a granted key: %v, want %v", err, errTwoHolders)
	}
	cancel()
	if err := waitUngranted(ctx, failing{ctx.Err()}); err != nil {
		t.Errorf("the end of the context: %v", err)
	}
	broken := errors.New("broken")
	if err := waitUngranted(t.Context(), failing{broken}); !errors.Is(err, broken) {
		t.Errorf("an error of its own: %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) Lock(context.Context, string) (unlock, error) {
	return nil, f.err
}
func (failing) Close() error { return nil }

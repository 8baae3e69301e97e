// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp/fence"
	"github.com/redis/go-redis/v9"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := NewGuard(w.admin)
	if _, err := g.Get(w.ctx, "k", 1); !errors.Is(err, redis.Nil) {
		t.Errorf("a read before any write: %v", err)
	}
	for i, c := range []struct {
		write bool
		fence uint64
		ok    bool
	}{
		{true, 5, true}, {true, 5, true}, {false, 9, true}, {true, 6, true}, {true, 5, false}, {false, 5, false}, {false, 6, true},
		{true, 10, true}, {true, 9, false}, {true, 1<<53 + 1, true}, {true, 1 << 53, false}, {true, 1<<63 - 1, true}, {true, 1<<63 - 2, false},
	} {
		var err error
		if c.write {
			err = g.Set(w.ctx, "k", c.fence, 0, c.fence)
		} else {
			_, err = g.Get(w.ctx, "k", c.fence)
		}
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, fence.ErrStale) {
			t.Errorf("step %d, fence %d: %v", i, c.fence, err)
		}
	}
	if got := w.admin.Get(w.ctx, "k").Val(); got != "9223372036854775807" {
		t.Errorf("written is %q", got)
	}
	var stale *fence.StaleError
	if err := g.Del(w.ctx, "k", 7); !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: "k", Fence: 7, Newest: 1<<63 - 1}) {
		t.Errorf("%v: %+v", err, stale)
	}
	for _, bad := range []uint64{0, 1 << 63} {
		if err := g.Set(w.ctx, "k", "bad", 0, bad); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%d is no fence: %v", bad, err)
		}
	}
	if err := g.Del(w.ctx, "k", 1<<63-1); err != nil {
		t.Error(err)
	}
	if _, err := g.Get(w.ctx, "k", 1<<63-2); !errors.Is(err, fence.ErrStale) {
		t.Errorf("after it was deleted: %v", err)
	}
	if err := g.Set(w.ctx, "mortal", "v", time.Minute, 1); err != nil || w.admin.PTTL(w.ctx, "mortal").Val() <= 0 {
		t.Errorf("%v; left: %v", err, w.admin.PTTL(w.ctx, "mortal").Val())
	}
}

// The commands of one step, and what each answers.
func TestGuardOfCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := NewGuard(w.admin)
	keys := []string{"{a}h", "{a}n"}
	replies, err := g.Write(w.ctx, "{a}", 7, keys, Command{"HSET", keys[0], "f", "v w\r\n'"}, Command{"GET", keys[1]}, Command{"INCRBY", keys[1], 41}, Command{"INCR", keys[1]})
	if err != nil || len(replies) != 4 || replies[0] != int64(1) || replies[1] != nil || replies[2] != int64(41) || replies[3] != int64(42) {
		t.Errorf("%v, %v", replies, err)
	}
	if _, err := g.Write(w.ctx, "{a}", 6, keys, Command{"INCR", keys[1]}); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	if _, err := g.Write(w.ctx, "{a}", 8, keys, Command{"INCR", keys[1]}, Command{"INCR", keys[0]}); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a command that fails: %v", err)
	}
	if got := w.admin.Get(w.ctx, keys[1]).Val(); got != "43" {
		t.Errorf("the number is %s", got)
	}
	if _, err := g.Write(w.ctx, "{a}", 7, keys); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the fence of a step that failed does not count: %v", err)
	}
	if replies, err := g.Write(w.ctx, "{a}", 8, nil); err != nil || len(replies) != 0 {
		t.Errorf("no commands: %v, %v", replies, err)
	}
}

// What is no fence is an error that names the key, never a small one.
func TestGuardOfABrokenFence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := NewGuard(w.admin)
	for _, text := range []string{"", "x", "0", "07", "7 ", "-7", "7.5", "1e9"} {
		w.admin.Set(w.ctx, "hasp.guard:{k}", text, 0)
		var data *DataError
		if err := g.Set(w.ctx, "k", "v", 0, 9); !errors.As(err, &data) || data.Key != "hasp.guard:{k}" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A user with the rights that locks need, and to the data, can use the guard.
func TestGuardWithFewRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	allow(t, w.admin, "locks", "~data")
	g := NewGuard(w.client(func(o *redis.Options) { o.Username, o.Password = "locks", "secret" }))
	if err := g.Set(w.ctx, "data", "v", 0, 9); err != nil {
		t.Error(err)
	}
	if _, err := g.Get(w.ctx, "data", 8); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
}

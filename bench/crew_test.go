// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sham is a locker that does not exclude, or fails.
type sham struct {
	lock, unlock error
}

func (s sham) Lock(context.Context, string) (func(context.Context) error, error) {
	return func(context.Context) error { return s.unlock }, s.lock
}

func (sham) Close() error { return nil }

// barge is a lock whose holder takes it again past those who wait, for a second.
type barge struct {
	mu    sync.Mutex
	taken bool
}

func (b *barge) Lock(ctx context.Context, _ string) (func(context.Context) error, error) {
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

func (*barge) Close() error { return nil }

func hire(n int, l locker) *crew {
	g := new(guard)
	c := &crew{hold: time.Millisecond}
	for range n {
		c.hands = append(c.hands, &hand{locker: l, key: "k", guard: g})
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
		{"a lock that does not exclude", sham{}, errTwoHolders},
		{"a Lock that fails", sham{lock: fault}, fault},
		{"a release that fails", sham{unlock: errLost}, errLost},
		{"a good lock", localLocker{}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := 2
			if c.locker == (sham{unlock: errLost}) {
				n = 1
			}
			if _, err := hire(n, c.locker).work(t.Context(), 50*time.Millisecond, nil); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// Who takes the key again and again hands nothing over, and the wait of who
// never has it counts.
func TestWorkCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hire(2, &barge{})
		asked := false
		took, err := c.work(t.Context(), 500*time.Millisecond+time.Microsecond, func() error { asked = true; return nil })
		if err != nil || !asked || took != 500*time.Millisecond+time.Microsecond {
			t.Fatalf("%v, asked at the end: %v, %v", took, asked, err)
		}
		lucky, other := c.hands[0], c.hands[1]
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
		l := &barge{taken: true} // nobody gives it back
		if err := hire(1, l).warm(t.Context(), 1, 1); !errors.Is(err, errCold) {
			t.Errorf("got %v, want %v", err, errCold)
		}
		l.taken = false
		if err := hire(3, l).warm(t.Context(), 2, 1); err != nil {
			t.Error(err)
		}
	})
}

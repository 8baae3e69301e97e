// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// holderEnv marks a process that holds a key.
const holderEnv = "HASP_VERIFY_HOLDER"

// holderMain turns this process into a holder when it was started as one, and does not return then.
func holderMain() {
	player.Main(holderEnv, func(in io.Reader, out io.Writer) error {
		return player.Work(in, out, func(j player.Job, observe func(context.Context, *event.Event)) (player.Locks, error) {
			return hasp.New(redisdriver.New(redis.NewClient(&redis.Options{Addr: j.Store}), nil), &hasp.Options{Observe: observe})
		})
	})
}

// holder is a process of its own that holds a key.
type holder struct {
	*player.Process
	fence  uint64
	events chan player.Event
}

// startHolder starts this program again as a holder of the key "k", and returns once it holds the
// key. It is killed when the test ends.
func startHolder(t *testing.T, addr string, ttl time.Duration) *holder {
	h := &holder{events: make(chan player.Event, 2)} // of one order
	var err error
	h.Process, err = player.Spawn(1, holderEnv, player.Job{Store: addr, TTL: ttl}, func(e player.Event) {
		if e.What == player.Granted || e.What == player.Failed || e.What == player.Ended {
			h.events <- e
		}
	})
	must(t, err)
	t.Cleanup(h.Kill)
	h.Send(player.Order{Wants: []player.Want{{Key: "k"}}, Hold: time.Hour, Bare: true})
	e := h.next(t)
	if e.What != player.Granted {
		t.Fatalf("the holder: %+v", e)
	}
	h.fence = e.Fence
	return h
}

// next returns what became of the order.
func (h *holder) next(t *testing.T) (e player.Event) {
	select {
	case e = <-h.events:
	case <-h.Ended:
		t.Fatalf("the holder ended: %s", h.Last())
	}
	return e
}

// Failure case 2. Rule: a process that was stopped for longer than the TTL finds the loss
// by its first check of the lease, and its fence is smaller than the next holder's.
func TestStoppedHolderFindsTheLoss(t *testing.T) {
	const ttl = 15 * time.Second
	s := testserver.Redis(t)
	h := startHolder(t, s.Addr(), ttl)
	must(t, h.Pause())
	next := mustLock(t, Locks(t, s.Addr(), nil).Mutex("k", &hasp.LockOptions{TTL: time.Hour}))
	h.Send(player.Order{Stop: true}) // which it reads when it goes on, and checks the lease
	must(t, h.Resume())
	if e := h.next(t); !e.Lost {
		t.Errorf("the first answer of the lease after the stop: %+v, want a loss", e)
	}
	if next.Fence() <= h.fence {
		t.Errorf("fence %d after %d", next.Fence(), h.fence)
	}
	if err := next.Extend(t.Context(), time.Hour); err != nil {
		t.Errorf("the next holder, after the other one went on: %v", err)
	}
	release(t, next)
}

// Failure case 14. Rule: when a holder is killed, the waiter has the key
// within the TTL plus a little, with no other traffic on it.
func TestKilledHolder(t *testing.T) {
	const ttl = 15 * time.Second
	s := testserver.Redis(t)
	h := startHolder(t, s.Addr(), ttl)
	events := newFeed()
	got := lockAsync(t.Context(), Locks(t, s.Addr(), events.observe).Mutex("k", &hasp.LockOptions{TTL: ttl}))
	events.waits(t)
	h.Kill()
	dead, lost := time.Now(), stall.Watch(t)
	lease, at := awaitLease(t, got)
	t.Logf("killed with -9; the waiter had the key %v later (TTL %v)", at.Sub(dead), ttl)
	if took := at.Sub(dead); took > ttl+little+lost() {
		t.Errorf("the waiter had the key %v after the holder's death, want %v", took, ttl)
	}
	if lease.Fence() <= h.fence {
		t.Errorf("fence %d after %d", lease.Fence(), h.fence)
	}
	release(t, lease)
}
